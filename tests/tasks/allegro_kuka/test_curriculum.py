"""When the tolerance shrinks, by how much, and what that is worth."""

import pytest
import torch

from echelon.tasks.allegro_kuka.reward import Tolerance
from echelon.tasks.allegro_kuka.settings import AllegroKukaConfig

GOOD, POOR = torch.tensor([6.0, 0.0]), torch.tensor([5.9, 0.0])  # 3 and 2.95 in the mean


def made(interval: int = 4, target: float = 0.01) -> Tolerance:
    return Tolerance(AllegroKukaConfig(tolerance_interval=interval, target_tolerance=target), torch.device("cpu"))


def test_shrinks_when_time_has_passed_and_the_mean_suffices() -> None:
    tolerance, seen = made(), []
    for successes in (GOOD, GOOD, GOOD, GOOD, POOR, POOR, POOR, POOR, POOR, GOOD, GOOD, GOOD, GOOD, GOOD):
        tolerance.advance(successes)
        seen.append(round(tolerance.value.item(), 6))
    # The 4th step is the first with 4 steps behind it; from the 8th on it waits for a mean of 3, then 4 steps again.
    assert seen == [0.075] * 3 + [0.0675] * 6 + [0.06075] * 4 + [0.054675]


def test_reaches_its_target_in_twenty_changes() -> None:
    """0.075 · 0.9ⁿ is below 0.01 first for n = 20."""
    tolerance, values = made(interval=1), []
    for _ in range(25):
        tolerance.advance(GOOD)
        values.append(tolerance.value.item())
    assert values[18] == pytest.approx(0.075 * 0.9**19, rel=1e-5)
    assert values[19] == values[24] == pytest.approx(0.01)


def test_a_fixed_one_stays() -> None:
    tolerance = made(interval=1)
    tolerance.fixed = True
    tolerance.advance(GOOD)
    assert tolerance.value == torch.tensor(0.075)
    throw = made(interval=1, target=0.075)
    throw.advance(GOOD)
    assert throw.value == torch.tensor(0.075)


def test_objective() -> None:
    """(0.075 - tol) / 0.065, and a hundredth of the successes; at the target 1 and all of them."""
    tolerance, successes = made(), torch.tensor([0.0, 20.0])
    torch.testing.assert_close(tolerance.objective(successes), torch.tensor([0.0, 0.2]))
    tolerance.value.fill_(0.049)
    torch.testing.assert_close(tolerance.objective(successes), torch.tensor([0.4, 0.6]))
    tolerance.value.fill_(0.01)
    torch.testing.assert_close(tolerance.objective(successes), torch.tensor([1.0, 21.0]))
    torch.testing.assert_close(made(target=0.075).objective(successes), torch.tensor([1.0, 21.0]))
