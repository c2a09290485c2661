"""Importance weights: hand-computed values, the exact Gaussian relations, and Propositions 1 and 3 of the paper."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from echelon.diagnostics.propositions import ess_rate, gaussian_kl, is_deviation


def normal_quantiles(n: int) -> Tensor:
    """`n` equally likely points of the standard normal: a deterministic sample of it."""
    return torch.special.ndtri((torch.arange(n, dtype=torch.float64) + 0.5) / n)


def log_normal(x: Tensor, mean: float, std: float) -> Tensor:
    return -0.5 * ((x - mean) / std) ** 2 - math.log(std)


@st.composite
def discrete_pairs(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """Rows of a behaviour p with rational probabilities, each row as often as p says, and the KL to a target q.

    Means over the rows are then exact expectations under p. Returns log w `[n]` and KL(p ‖ q).
    """
    counts = torch.tensor(draw(st.lists(st.integers(1, 20), min_size=2, max_size=6)))
    q = torch.tensor(draw(st.lists(st.floats(0.01, 1.0), min_size=len(counts), max_size=len(counts)))).double()
    p, q = counts / counts.sum().double(), q / q.sum()
    return torch.log(q / p).repeat_interleave(counts), (p * torch.log(p / q)).sum()


def test_hand_computed_values() -> None:
    # w = 1, 2, 1/2: deviation (0 + 1 + 1/2) / 3 = 1/2; ESS rate 3.5² / (3 · 5.25) = 7/9.
    log_w = torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64).log()
    assert is_deviation(log_w).item() == pytest.approx(1 / 2)
    assert ess_rate(log_w).item() == pytest.approx(7 / 9)
    assert (is_deviation(torch.zeros(4, 5)).item(), ess_rate(torch.zeros(4, 5)).item()) == (0.0, 1.0)


def test_ess_rate_survives_weights_beyond_float32() -> None:
    # e^200 overflows float32; only the differences of log w count, here w ∝ 1, 2, 1/2 again.
    log_w = torch.tensor([1.0, 2.0, 0.5]).log()
    assert ess_rate(log_w + 200.0).item() == pytest.approx(7 / 9, rel=1e-5)
    # One weight that dwarfs the rest leaves one row of four.
    assert ess_rate(torch.tensor([900.0, 0.0, 0.0, 0.0])).item() == pytest.approx(1 / 4)


@pytest.mark.parametrize("d", [0.01, 0.07, 0.2, 0.5])
def test_gaussians_of_equal_covariance(d: float) -> None:
    """E|1-w| = 2 erf(√d/2) and ESS/n = exp(-2d): behaviour N(0, σ²), leader N(δσ, σ²), d = δ²/2."""
    std, delta = 0.3, math.sqrt(2 * d)
    zero = torch.zeros(1, dtype=torch.float64)
    kl = gaussian_kl(zero, zero + math.log(std), zero + delta * std, zero + math.log(std))
    assert kl.item() == pytest.approx(d)
    action = std * normal_quantiles(1 << 20)
    log_w = log_normal(action, delta * std, std) - log_normal(action, 0.0, std)
    assert is_deviation(log_w).item() == pytest.approx(2 * math.erf(math.sqrt(d) / 2), rel=1e-4)
    # The sample ends at 4.9 σ, and what lies beyond carries up to 0.2 % of E[w²] at δ = 1.
    assert ess_rate(log_w).item() == pytest.approx(math.exp(-2 * d), rel=3e-3)


@settings(deadline=None)
@given(discrete_pairs())
def test_proposition_3_discrete(pair: tuple[Tensor, Tensor]) -> None:
    """E|1-w| ≤ √(2 KL(behaviour ‖ leader)), Pinsker's inequality."""
    log_w, kl = pair
    assert is_deviation(log_w) <= torch.sqrt(2 * kl.clamp_min(0)) + 1e-7


@settings(deadline=None)
@given(discrete_pairs(), st.integers(0, 50))
def test_proposition_1_with_its_row_counts(pair: tuple[Tensor, Tensor], leader_rows: int) -> None:
    """E|1-w| ≤ √Var[w], and ESS/n = 1/(1 + f Var[w]) with a share f of follower rows; so deviation bounds the ESS."""
    log_w, _ = pair
    variance = torch.exp(log_w).var(correction=0)
    deviation = is_deviation(log_w)
    assert deviation <= variance.sqrt() + 1e-9
    rate = ess_rate(torch.cat((log_w, log_w.new_zeros(leader_rows))))
    share = len(log_w) / (len(log_w) + leader_rows)
    torch.testing.assert_close(rate, 1 / (1 + share * variance))
    assert rate <= 1 / (1 + share * deviation.square()) + 1e-9


def test_the_proof_needs_its_row_counts() -> None:
    # Two leader rows with w = 1 and two follower rows with w = 3/2, 1/2: Var = 1/4.
    # With the counts 4² / (2·1 + 2·(1/4 + 1)) = 32/9 effective rows of 4; without them, as in the paper's proof,
    # 4² / (0 + 1/4 + 2) = 64/9, more rows than there are.
    log_w = torch.tensor([1.0, 1.0, 1.5, 0.5], dtype=torch.float64).log()
    assert 4 * ess_rate(log_w).item() == pytest.approx(32 / 9)


PUBLISHED = [(0.297, 0.871), (0.222, 0.923), (0.403, 0.763), (0.276, 0.888)]
"""Deviation and ESS rate of CPO in the paper's table: ShadowHand at λ_f 0.2, 0.1, 0.5, Reorientation at 0.2."""


@pytest.mark.parametrize(("deviation", "rate"), PUBLISHED)
def test_published_pairs_lie_on_the_gaussian_curve(deviation: float, rate: float) -> None:
    d = 4 * torch.special.erfinv(torch.tensor(deviation / 2, dtype=torch.float64)).square().item()
    delta = math.sqrt(2 * d)
    log_w = delta * normal_quantiles(1 << 18) - d
    assert is_deviation(log_w).item() == pytest.approx(deviation, abs=1e-4)
    assert ess_rate(log_w).item() == pytest.approx(rate, abs=0.01)


@settings(deadline=None)
@given(mean=st.floats(-2, 2), log_std=st.floats(-1, 1))
def test_proposition_3_gaussian(mean: float, log_std: float) -> None:
    """The same for N(0, 1) against N(mean, σ²), by quadrature."""
    x = normal_quantiles(1 << 12)
    log_w = log_normal(x, mean, math.exp(log_std)) - log_normal(x, 0.0, 1.0)
    zero = torch.zeros(1, dtype=torch.float64)
    kl = gaussian_kl(zero, zero, zero + mean, zero + log_std)
    assert is_deviation(log_w) <= torch.sqrt(2 * kl) + 1e-3
