"""The bias of clipping: against the autograd difference of the two surrogates, and Proposition 2 of the paper."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import Normal

from echelon.diagnostics.propositions import clip_bias, clip_bias_bound, gaussian_score

CLIP = 0.2


@pytest.mark.parametrize(
    ("ratio", "advantage", "bias", "bound"),
    [
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
    ],
)
def test_one_row(ratio: float, advantage: float, bias: float, bound: float) -> None:
    one = torch.ones(1, dtype=torch.float64)
    row = (one * ratio).log(), one * advantage, one[:, None]
    assert clip_bias(*row, clip=CLIP).item() == pytest.approx(bias)
    assert clip_bias_bound(*row, clip=CLIP).item() == pytest.approx(bound)


def test_bias_is_the_difference_of_the_two_gradients() -> None:
    """For mean and log σ of a Gaussian leader, on actions of a follower, by autograd through both surrogates."""
    generator = torch.Generator().manual_seed(0)
    action = torch.randn(500, 3, generator=generator, dtype=torch.float64)
    advantage = torch.randn(500, generator=generator, dtype=torch.float64)
    mean = torch.tensor([0.3, -0.2, 0.1], dtype=torch.float64, requires_grad=True)
    log_std = torch.tensor([0.1, -0.1, 0.0], dtype=torch.float64, requires_grad=True)
    log_ratio = (Normal(mean, log_std.exp()).log_prob(action) - Normal(0.0, 1.0).log_prob(action)).sum(-1)
    ratio = log_ratio.exp()

    plain = (ratio * advantage).mean()
    clipped = torch.minimum(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage).mean()
    expected = torch.cat(torch.autograd.grad(plain - clipped, (mean, log_std)))

    score = gaussian_score(action, mean.detach(), log_std.detach())
    bias = clip_bias(log_ratio.detach(), advantage, score, CLIP)
    torch.testing.assert_close(bias, expected)
    assert 0 < bias.norm() <= clip_bias_bound(log_ratio.detach(), advantage, score, CLIP)


@st.composite
def clip_rows(draw: st.DrawFn) -> tuple[Tensor, Tensor, Tensor]:
    """log r and A `[n]`, and scores `[n, 2]`."""
    row = st.tuples(st.floats(-3, 3), st.floats(-5, 5), st.floats(-5, 5), st.floats(-5, 5))
    rows = torch.tensor(draw(st.lists(row, min_size=1, max_size=8)), dtype=torch.float64)
    return rows[:, 0], rows[:, 1], rows[:, 2:]


@settings(deadline=None)
@given(clip_rows(), st.floats(0.01, 0.5))
def test_proposition_2(rows: tuple[Tensor, Tensor, Tensor], clip: float) -> None:
    bound = clip_bias_bound(*rows, clip=clip)
    assert clip_bias(*rows, clip=clip).norm() <= bound * (1 + 1e-9) + 1e-12


def test_mean_over_rows() -> None:
    # Two clipped rows, r A = 3 along x and 2 · 1.5 = 3 along y, and two that are not: bias (3, 3)/4.
    # Bound: √((9 + 9)/4).
    log_ratio = torch.tensor([1.5, 1.5, 1.0, 1.1], dtype=torch.float64).log()
    advantage = torch.tensor([2.0, 2.0, 7.0, -7.0]).double()
    score = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, 1.0]]).double()
    torch.testing.assert_close(clip_bias(log_ratio, advantage, score, CLIP), torch.full((2,), 0.75).double())
    assert clip_bias_bound(log_ratio, advantage, score, CLIP).item() == pytest.approx((18 / 4) ** 0.5)


def test_bound_grows_with_the_distance_of_the_policies() -> None:
    """Actions of N(0, 1), leader N(δ, 1): ln r = δ a - δ²/2."""
    action = torch.special.ndtri((torch.arange(4096, dtype=torch.float64) + 0.5) / 4096)[:, None]
    advantage = torch.sin(3 * action[:, 0])
    bounds = []
    for delta in (0.01, 0.1, 0.3, 1.0):
        score = gaussian_score(action, torch.full_like(action, delta), torch.zeros_like(action))
        bounds.append(clip_bias_bound(delta * action[:, 0] - delta**2 / 2, advantage, score, CLIP).item())
    assert bounds[0] == 0.0  # at δ = 0.01 no action of the 4096 has a ratio beyond 1.2
    assert bounds == sorted(bounds)
    assert bounds[1] > 0.0
