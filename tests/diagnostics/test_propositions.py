"""The statistics of the paper's propositions: by hand, by exact relations, by autograd and by torch.distributions."""

import math

import pytest
import torch
from gpu import needs_gpu
from hypothesis import given, settings, strategies as st
from torch import Tensor
from torch.distributions import Independent, Normal, kl_divergence

from echelon.diagnostics import (
    clip_bias,
    clip_bias_bound,
    ess_rate,
    gaussian_kl,
    gaussian_score,
    is_deviation,
    kl_matrix,
    nearest_policy,
)

CLIP = 0.2


def numbers(*x: float) -> Tensor:
    return torch.tensor(x, dtype=torch.float64)


def normal_quantiles(n: int) -> Tensor:
    """`n` equally likely points of the standard normal: a deterministic sample of it."""
    return torch.special.ndtri((torch.arange(n, dtype=torch.float64) + 0.5) / n)


def log_normal(x: Tensor, mean: float, std: float) -> Tensor:
    return -0.5 * ((x - mean) / std) ** 2 - math.log(std)


def test_importance_weights_and_kl_by_hand() -> None:
    # w = 1, 2, 1/2: deviation (0 + 1 + 1/2) / 3 = 1/2; ESS rate 3.5² / (3 · 5.25) = 7/9.
    log_w = numbers(1.0, 2.0, 0.5).log()
    assert is_deviation(log_w).item() == pytest.approx(1 / 2)
    assert ess_rate(log_w).item() == pytest.approx(7 / 9)
    assert (is_deviation(torch.zeros(4, 5)).item(), ess_rate(torch.zeros(4, 5)).item()) == (0.0, 1.0)
    # e^200 overflows float32; only the differences of log w count, here w ∝ 1, 2, 1/2 again.
    assert ess_rate(log_w.float() + 200.0).item() == pytest.approx(7 / 9, rel=1e-5)
    # One weight that dwarfs the rest leaves one row of four.
    assert ess_rate(torch.tensor([900.0, 0.0, 0.0, 0.0])).item() == pytest.approx(1 / 4)
    # Two leader rows with w = 1 and two follower rows with w = 3/2, 1/2: Var = 1/4.
    # With the counts 4² / (2·1 + 2·(1/4 + 1)) = 32/9 effective rows of 4; without them, as in the paper's proof,
    # 4² / (0 + 1/4 + 2) = 64/9, more rows than there are.
    assert 4 * ess_rate(numbers(1.0, 1.0, 1.5, 0.5).log()).item() == pytest.approx(32 / 9)
    # N(0, 1) against N(1, 2²): ln 2 + (1 + 1)/8 - 1/2 = 0.4431; the second action is the same in both and adds 0.
    p, q = (numbers(0.0, 3.0), numbers(0.0, -1.0)), (numbers(1.0, 3.0), numbers(math.log(2), -1.0))
    assert gaussian_kl(*p, *q).item() == pytest.approx(math.log(2) - 0.25)
    # The other way round: -ln 2 + (4 + 1)/2 - 1/2 = 1.3069.
    assert gaussian_kl(*q, *p).item() == pytest.approx(2 - math.log(2))
    # Scales that differ by 1e-3: KL = ½(e^(2Δ) - 1 - 2Δ) ≈ Δ² = 1e-6, lost in float32 if 1 were added and taken away.
    zero = torch.zeros(1)
    found = gaussian_kl(zero, zero + 1e-3, zero, zero).item()
    assert found == pytest.approx(0.5 * (math.expm1(2e-3) - 2e-3), rel=1e-3)
    # Equal policies: exactly zero. The reference's epsilons give -0.023 at A = 46, σ = 0.1, which moves its rate.
    for std in (1e-3, 0.1, 1.0):
        mean, log_std = torch.randn(7, 46, generator=torch.Generator().manual_seed(0)), torch.full((46,), math.log(std))
        assert torch.equal(gaussian_kl(mean, log_std, mean, log_std), torch.zeros(7))


@st.composite
def discrete_pairs(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """Rows of a behaviour p with rational probabilities, each row as often as p says, and the KL to a target q.

    Means over the rows are then exact expectations under p. Returns log w `[n]` and KL(p ‖ q).
    """
    counts = torch.tensor(draw(st.lists(st.integers(1, 20), min_size=2, max_size=6)))
    q = torch.tensor(draw(st.lists(st.floats(0.01, 1.0), min_size=len(counts), max_size=len(counts)))).double()
    p, q = counts / counts.sum().double(), q / q.sum()
    return torch.log(q / p).repeat_interleave(counts), (p * torch.log(p / q)).sum()


@settings(deadline=None)
@given(discrete_pairs(), st.integers(0, 50))
def test_propositions_1_and_3_discrete(pair: tuple[Tensor, Tensor], leader_rows: int) -> None:
    """E|1-w| ≤ √Var[w], and ESS/n = 1/(1 + f Var[w]) with a share f of follower rows; so deviation bounds the ESS.
    E|1-w| ≤ √(2 KL(behaviour ‖ leader)), Pinsker's inequality."""
    log_w, kl = pair
    variance, deviation = torch.exp(log_w).var(correction=0), is_deviation(log_w)
    assert deviation <= variance.sqrt() + 1e-9
    rate = ess_rate(torch.cat((log_w, log_w.new_zeros(leader_rows))))
    share = len(log_w) / (len(log_w) + leader_rows)
    torch.testing.assert_close(rate, 1 / (1 + share * variance))
    assert rate <= 1 / (1 + share * deviation.square()) + 1e-9
    assert deviation <= torch.sqrt(2 * kl.clamp_min(0)) + 1e-7


def test_gaussians_of_equal_covariance() -> None:
    """E|1-w| = 2 erf(√d/2) and ESS/n = exp(-2d): behaviour N(0, σ²), leader N(δσ, σ²), d = δ²/2."""
    for d in (0.01, 0.07, 0.2, 0.5):
        std, delta, zero = 0.3, math.sqrt(2 * d), numbers(0.0)
        kl = gaussian_kl(zero, zero + math.log(std), zero + delta * std, zero + math.log(std))
        assert kl.item() == pytest.approx(d)
        action = std * normal_quantiles(1 << 20)
        log_w = log_normal(action, delta * std, std) - log_normal(action, 0.0, std)
        assert is_deviation(log_w).item() == pytest.approx(2 * math.erf(math.sqrt(d) / 2), rel=1e-4)
        # The sample ends at 4.9 σ, and what lies beyond carries up to 0.2 % of E[w²] at δ = 1.
        assert ess_rate(log_w).item() == pytest.approx(math.exp(-2 * d), rel=3e-3)
    # Deviation and ESS rate of CPO in the paper's table lie on this curve: ShadowHand at λ_f 0.2, 0.1, 0.5,
    # Reorientation at 0.2.
    for deviation, rate in ((0.297, 0.871), (0.222, 0.923), (0.403, 0.763), (0.276, 0.888)):
        d = 4 * torch.special.erfinv(numbers(deviation / 2)).square().item()
        log_w = math.sqrt(2 * d) * normal_quantiles(1 << 18) - d
        assert is_deviation(log_w).item() == pytest.approx(deviation, abs=1e-4)
        assert ess_rate(log_w).item() == pytest.approx(rate, abs=0.01)


def test_clip_bias_by_hand_and_as_the_difference_of_the_two_gradients() -> None:
    for ratio, advantage, bias, bound in (
        # |1-r| + 1 = r for r ≥ 1: one clipped row meets the bound.
        (1.5, 2.0, 3.0, 3.0),
        # Clipped from below: r A = -1; the bound has (0.5 + 1) · 2.
        (0.5, -2.0, -1.0, 3.0),
        # Outside the interval but not clipped, because the unclipped branch is the smaller.
        (1.5, -2.0, 0.0, 3.0),
        (0.5, 2.0, 0.0, 3.0),
        # Inside.
        (1.1, 2.0, 0.0, 0.0),
        (1.5, 0.0, 0.0, 0.0),
    ):
        row = numbers(ratio).log(), numbers(advantage), numbers(1.0)[:, None]
        assert clip_bias(*row, clip=CLIP).item() == pytest.approx(bias), (ratio, advantage)
        assert clip_bias_bound(*row, clip=CLIP).item() == pytest.approx(bound), (ratio, advantage)
    # Two clipped rows, r A = 3 along x and 2 · 1.5 = 3 along y, and two that are not: bias (3, 3)/4.
    # Bound: √((9 + 9)/4).
    log_ratio, advantage = numbers(1.5, 1.5, 1.0, 1.1).log(), numbers(2.0, 2.0, 7.0, -7.0)
    score = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, 1.0]]).double()
    torch.testing.assert_close(clip_bias(log_ratio, advantage, score, CLIP), numbers(0.75, 0.75))
    assert clip_bias_bound(log_ratio, advantage, score, CLIP).item() == pytest.approx((18 / 4) ** 0.5)
    # For mean and log σ of a Gaussian leader, on actions of a follower, by autograd through both surrogates.
    generator = torch.Generator().manual_seed(0)
    action = torch.randn(500, 3, generator=generator, dtype=torch.float64)
    advantage = torch.randn(500, generator=generator, dtype=torch.float64)
    mean, log_std = numbers(0.3, -0.2, 0.1).requires_grad_(), numbers(0.1, -0.1, 0.0).requires_grad_()
    log_ratio = (Normal(mean, log_std.exp()).log_prob(action) - Normal(0.0, 1.0).log_prob(action)).sum(-1)
    ratio = log_ratio.exp()
    plain = (ratio * advantage).mean()
    clipped = torch.minimum(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage).mean()
    expected = torch.cat(torch.autograd.grad(plain - clipped, (mean, log_std)))
    rows = log_ratio.detach(), advantage, gaussian_score(action, mean.detach(), log_std.detach())
    bias = clip_bias(*rows, CLIP)
    torch.testing.assert_close(bias, expected)
    assert 0 < bias.norm() <= clip_bias_bound(*rows, CLIP)


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(-3, 3), *[st.floats(-5, 5)] * 3), min_size=1, max_size=8), st.floats(0.01, 0.5))
def test_proposition_2(rows: list[tuple[float, ...]], clip: float) -> None:
    """log r and A `[n]`, and scores `[n, 2]`."""
    table = torch.tensor(rows, dtype=torch.float64)
    given = table[:, 0], table[:, 1], table[:, 2:]
    assert clip_bias(*given, clip=clip).norm() <= clip_bias_bound(*given, clip=clip) * (1 + 1e-9) + 1e-12


def test_matrix_entry_by_entry_and_the_nearest_other_policy() -> None:
    """K[i, j] is from policy i to policy j on the states of i."""
    generator = torch.Generator().manual_seed(1)
    mean = torch.randn(3, 3, 11, 2, generator=generator, dtype=torch.float64)
    log_std = torch.randn(3, 2, generator=generator, dtype=torch.float64)
    policy = [[Independent(Normal(mean[i, k], log_std[k].exp()), 1) for k in range(3)] for i in range(3)]
    expected = [[kl_divergence(policy[i][i], policy[i][j]).mean().item() for j in range(3)] for i in range(3)]
    torch.testing.assert_close(kl_matrix(mean, log_std), torch.tensor(expected, dtype=torch.float64))
    matrix = torch.tensor([[0.0, 5.0, 1.0], [2.0, 0.0, 3.0], [1.0, 0.5, 0.0]])
    assert nearest_policy(matrix).tolist() == [2, 0, 1]


def every_one(device: str) -> list[Tensor]:
    vector = torch.randn(64, device=device)
    score = gaussian_score(*torch.randn(3, 64, 5, device=device))
    matrix = kl_matrix(torch.randn(4, 4, 8, 5, device=device), torch.randn(4, 5, device=device))
    bias = clip_bias(vector, vector, score, 0.2), clip_bias_bound(vector, vector, score, 0.2)
    return [is_deviation(vector), ess_rate(vector), score, matrix, nearest_policy(matrix), *bias]


def test_no_value_is_needed_on_the_host() -> None:
    """Meta tensors have no values: a host read, or a constant on another device, raises."""
    results = every_one("meta")
    assert [tuple(result.shape) for result in results] == [(), (), (64, 10), (4, 4), (4,), (10,), ()]
    assert all(result.dtype in (torch.float32, torch.int64) for result in results)


@needs_gpu
def test_cuda_without_synchronisation() -> None:
    every_one("cuda")
    torch.cuda.set_sync_debug_mode("error")
    try:
        assert all(result.is_cuda for result in every_one("cuda"))
    finally:
        torch.cuda.set_sync_debug_mode("default")
