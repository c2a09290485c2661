"""Gaussian KL divergences against hand-computed values and torch.distributions."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributions import Independent, Normal, kl_divergence

from echelon.diagnostics.propositions import gaussian_kl, kl_matrix, nearest_policy


@pytest.mark.parametrize("std", [1e-3, 0.1, 1.0])
def test_equal_policies_have_exactly_zero(std: float) -> None:
    """The reference's epsilons give -0.023 at A = 46, σ = 0.1, enough to move its learning rate."""
    mean, log_std = torch.randn(7, 46, generator=torch.Generator().manual_seed(0)), torch.full((46,), math.log(std))
    assert torch.equal(gaussian_kl(mean, log_std, mean, log_std), torch.zeros(7))


@settings(deadline=None)
@given(st.lists(st.tuples(*[st.floats(-3, 3)] * 4), min_size=1, max_size=5))
def test_agrees_with_torch(rows: list[tuple[float, ...]]) -> None:
    mean_p, log_std_p, mean_q, log_std_q = torch.tensor(rows, dtype=torch.float64).T
    kl = gaussian_kl(mean_p, log_std_p, mean_q, log_std_q)
    expected = kl_divergence(Normal(mean_p, log_std_p.exp()), Normal(mean_q, log_std_q.exp())).sum()
    assert kl >= 0
    torch.testing.assert_close(kl, expected, rtol=1e-9, atol=1e-9)


def test_small_differences_keep_their_digits_in_float32() -> None:
    # Scales that differ by 1e-3: KL = ½(e^(2Δ) - 1 - 2Δ) ≈ Δ² = 1e-6, lost if 1 were added and taken away.
    zero = torch.zeros(1)
    kl = gaussian_kl(zero, zero + 1e-3, zero, zero)
    assert kl.item() == pytest.approx(0.5 * (math.expm1(2e-3) - 2e-3), rel=1e-3)


def test_matrix_entry_by_entry() -> None:
    """K[i, j] is from policy i to policy j on the states of i."""
    generator = torch.Generator().manual_seed(1)
    mean = torch.randn(3, 3, 11, 2, generator=generator, dtype=torch.float64)
    log_std = torch.randn(3, 2, generator=generator, dtype=torch.float64)
    policy = [[Independent(Normal(mean[i, k], log_std[k].exp()), 1) for k in range(3)] for i in range(3)]
    expected = torch.stack(
        [torch.stack([kl_divergence(policy[i][i], policy[i][j]).mean() for j in range(3)]) for i in range(3)]
    )
    torch.testing.assert_close(kl_matrix(mean, log_std), expected)


def test_nearest_policy_skips_the_policy_itself() -> None:
    matrix = torch.tensor([[0.0, 5.0, 1.0], [2.0, 0.0, 3.0], [1.0, 0.5, 0.0]])
    assert nearest_policy(matrix).tolist() == [2, 0, 1]


def test_hand_computed_value() -> None:
    # N(0, 1) against N(1, 2²): ln 2 + (1 + 1)/8 - 1/2 = 0.4431; the second action is the same in both and adds 0.
    mean_p, log_std_p = torch.tensor([0.0, 3.0]).double(), torch.tensor([0.0, -1.0]).double()
    mean_q, log_std_q = torch.tensor([1.0, 3.0]).double(), torch.tensor([math.log(2), -1.0]).double()
    assert gaussian_kl(mean_p, log_std_p, mean_q, log_std_q).item() == pytest.approx(math.log(2) - 0.25)
    # The other way round: -ln 2 + (4 + 1)/2 - 1/2 = 1.3069.
    assert gaussian_kl(mean_q, log_std_q, mean_p, log_std_p).item() == pytest.approx(2 - math.log(2))
