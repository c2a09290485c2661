"""The rule that moves the learning rate, at its edges, and the KL that drives it."""

import math

import pytest
import torch

from echelon.diagnostics.propositions import gaussian_kl
from echelon.learning.optimizer import adapt, scheduling_kl


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("rate", "times", "expected"),
    [
        *((6e-4, times, 6e-4 * 1.5) for times in (0.0, -1.0, 0.49)),  # the reference's KL can be negative
        *((6e-4, times, 6e-4) for times in (0.5, 0.51, 1.0, 1.99, 2.0, math.nan)),
        *((6e-4, times, 6e-4 / 1.5) for times in (2.01, 3.0)),
        # Limits.
        *((rate, 60.0, 1e-6) for rate in (1.4e-6, 1e-6)),
        *((rate, 0.0, 1e-2) for rate in (9e-3, 1e-2)),
        (1e-6, 0.0, 1.5e-6),
        (1e-2, 60.0, 1e-2 / 1.5),
    ],
)
def test_rule(rate: float, times: float, expected: float, dtype: torch.dtype) -> None:
    """κ as a multiple of the threshold; exactly half and exactly twice it, and what is no number, keep the rate."""
    given = torch.tensor(rate, dtype=dtype)
    found = adapt(given, torch.tensor(times * 0.016, dtype=dtype), threshold=0.016)
    assert found.dtype == dtype
    assert found.item() == pytest.approx(expected, rel=1e-6)
    assert given.item() == pytest.approx(rate)  # a new number; the caller copies it


def test_scheduling_kl_by_hand_and_its_direction() -> None:
    # KL(N(0, 1) ‖ N(1, 2²)) = ln 2 + (1 + 1)/8 - ½; the other way round -ln 2 + (4 + 1)/2 - ½. Terms of 1e-5 aside.
    new = torch.zeros(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    ref = torch.ones(1, dtype=torch.float64), torch.full((1,), math.log(2), dtype=torch.float64)
    assert scheduling_kl(*new, *ref).item() == pytest.approx(math.log(2) - 0.25, abs=2e-5)
    assert scheduling_kl(*ref, *new).item() == pytest.approx(2 - math.log(2), abs=5e-5)
    # With them, to the last digit: ln(2 + 1e-5) + 2/(2(4 + 1e-5)) - ½.
    assert scheduling_kl(*new, *ref).item() == pytest.approx(math.log(2 + 1e-5) + 1 / 4.00001 - 0.5, abs=1e-15)


@pytest.mark.parametrize(("actions", "std"), [(20, 0.2), (20, 0.1), (20, 0.05), (46, 0.1), (3, 1.0)])
def test_scheduling_kl_of_equal_policies_has_the_references_bias(actions: int, std: float) -> None:
    # The fact sheet has -0.0023, -0.0098 and -0.040 for 20 actions.
    # ln(1 + 1e-5) ≈ 1e-5 and σ²/(2(σ² + 1e-5)) - ½ ≈ -5e-6/σ² for each action.
    log_std = torch.full((actions,), math.log(std), dtype=torch.float64)
    mean = torch.randn(actions, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = scheduling_kl(mean, log_std, mean, log_std).item()
    assert found == pytest.approx(actions * (1e-5 - 5e-6 / std**2), rel=5e-3, abs=1e-8)
    assert gaussian_kl(mean, log_std, mean, log_std).item() == 0.0
