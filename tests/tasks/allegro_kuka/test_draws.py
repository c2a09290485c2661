"""Where objects start and goals are, and which forces push, over many draws; when the tolerance shrinks."""

import math

import pytest
import torch
from tasks.allegro_kuka.states import REGRASPING, REORIENTATION, THROW, TWO_ARMS
from tasks.states import check_spread

from echelon import tasks
from echelon.tasks.allegro_kuka import objects
from echelon.tasks.allegro_kuka.objects import Draws, Pushes
from echelon.tasks.allegro_kuka.reward import Tolerance
from echelon.tasks.allegro_kuka.settings import AllegroKukaConfig
from echelon.tasks.mujoco_task import Rng

COUNT = 6000
SCALES = torch.tensor((objects.shuffled(objects.small(), objects.big(), objects.sticks()) * 7)[:COUNT])


def rng() -> Rng:
    return Rng(torch.Generator().manual_seed(0), COUNT)


def drawing(task: str) -> Draws:
    kind, turned = tasks.info(task).task, tasks.info(task).preset.env.keypoints > 1
    return Draws(kind.object_starts, kind.goal_places, SCALES, turned, rng())


def test_goals() -> None:
    for task, low, high in (
        *((one, (-0.4, 0.0, 0.68), (0.4, 0.35, 1.05)) for one in (REGRASPING, REORIENTATION)),
        (THROW, (0.5, -1.0, 0.05), (0.9, 0.7, 1.05)),
        (TWO_ARMS, (0.55, -0.5, 0.68), (0.95, 0.5, 1.05)),
    ):
        goal, turned = drawing(task).goals()
        goal[:, 2] += tasks.info(task).task.above_marker
        if task in (THROW, TWO_ARMS):
            assert goal[:, 0].sign().mean().abs() < 0.05  # either side as often
            goal[:, 0] = goal[:, 0].abs()
        check_spread(goal, torch.tensor(low), torch.tensor(high))
        torch.testing.assert_close(goal.mean(dim=0), (torch.tensor(low) + torch.tensor(high)) / 2, rtol=0, atol=0.02)
        if task in (REORIENTATION, TWO_ARMS):
            torch.testing.assert_close(turned.norm(dim=1), torch.ones(COUNT))
            assert (turned.mT @ turned / COUNT - torch.eye(4) / 4).abs().max() < 0.03  # uniform over rotations
        else:
            assert torch.equal(turned, torch.tensor([1.0, 0, 0, 0]).expand(COUNT, 4))


@pytest.mark.parametrize("task", [REORIENTATION, TWO_ARMS])
def test_objects_start_over_the_table_and_not_in_it(task: str) -> None:
    pose = drawing(task).starts()
    place = pose[:, :3].clone()
    if task == TWO_ARMS:
        assert place[:, 0].sign().mean().abs() < 0.05
        place[:, 0] = place[:, 0].abs() - 0.35
    check_spread(place[:, :2], -0.1, 0.1)
    # All eight corners, turned by the rotation matrix of the quaternion.
    w, x, y, z = pose[:, 3:].unbind(1)
    third = torch.stack((2 * (x * z - w * y), 2 * (y * z + w * x), w * w - x * x - y * y + z * z), dim=1)
    corners = torch.cartesian_prod(*[torch.tensor([-0.025, 0.025])] * 3)
    heights = place[:, 2:] + ((SCALES[:, None] * corners) * third[:, None]).sum(dim=2)
    assert heights.min() > 0.531
    inside = place[:, 2] <= 0.65 + 1e-6
    assert 0.005 < (~inside).float().mean() < 0.1  # those that would reach into the table are raised
    assert place[inside, 2].min() >= 0.61 - 1e-6
    assert (pose[:, 3:].mT @ pose[:, 3:] / COUNT - torch.eye(4) / 4).abs().max() < 0.03


def test_forces() -> None:
    """Chances are log-uniform between 0.001 and 0.1, half of them below 0.01. A force stays and decays until another is
    drawn, with the scale as its deviation."""
    pushes = Pushes(COUNT, 0.3, 1 / 60, rng())
    pushes.begin(torch.ones(COUNT, dtype=torch.bool))
    chance = pushes.chance
    check_spread(chance.log(), math.log(0.001), math.log(0.1), share=0.002)
    assert (chance < 0.01).float().mean().item() == pytest.approx(0.5, abs=0.03)
    assert chance.log().std().item() == pytest.approx(math.log(100) / math.sqrt(12), rel=0.03)
    assert not pushes.force.any()
    chance[:], chance[0], before = 0.1, 0.0, torch.tensor([1.0, -2.0, 3.0])
    pushes.force[:] = before
    pushes.advance()
    # 0.99 every 0.08 s: 0.99 ** (1 / 60 / 0.08) = 0.9979 a step
    torch.testing.assert_close(pushes.force[0], 0.9979083 * before, rtol=1e-6, atol=0)
    fresh = (pushes.force - 0.9979083 * before).abs().amax(dim=1) > 1e-5
    assert fresh.float().mean().item() == pytest.approx(0.1, abs=0.015)
    chance[:] = 1.0
    pushes.advance()
    assert pushes.force.std().item() == pytest.approx(0.3, rel=0.03)
    assert pushes.force.mean(dim=0).abs().max() < 0.02


GOOD, POOR = torch.tensor([6.0, 0.0]), torch.tensor([5.9, 0.0])  # 3 and 2.95 in the mean


def tolerance(interval: int = 4, target: float = 0.01) -> Tolerance:
    return Tolerance(AllegroKukaConfig(tolerance_interval=interval, target_tolerance=target), torch.device("cpu"))


def shrunk(it: Tolerance, *successes: torch.Tensor) -> list[float]:
    """Its values after each step."""
    return [it.advance(each) or it.value.item() for each in successes]


def test_the_tolerance_shrinks_when_time_has_passed_and_the_mean_suffices() -> None:
    # The 4th step is the first with 4 steps behind it; from the 8th on it waits for a mean of 3, then 4 steps again.
    seen = shrunk(tolerance(), *[GOOD] * 4, *[POOR] * 5, *[GOOD] * 5)
    assert [round(value, 6) for value in seen] == [0.075] * 3 + [0.0675] * 6 + [0.06075] * 4 + [0.054675]
    # 0.075 · 0.9ⁿ is below 0.01 first for n = 20.
    values = shrunk(tolerance(interval=1), *[GOOD] * 25)
    assert values[18] == pytest.approx(0.075 * 0.9**19, rel=1e-5)
    assert values[19] == values[24] == pytest.approx(0.01)
    fixed = tolerance(interval=1)
    fixed.fixed = True
    assert shrunk(fixed, GOOD) == shrunk(tolerance(interval=1, target=0.075), GOOD) == [torch.tensor(0.075).item()]
    # The objective: (0.075 - tol) / 0.065, and a hundredth of the successes; at the target 1 and all of them.
    it, successes = tolerance(), torch.tensor([0.0, 20.0])
    for value, expected in ((0.075, [0.0, 0.2]), (0.049, [0.4, 0.6]), (0.01, [1.0, 21.0])):
        it.value.fill_(value)
        torch.testing.assert_close(it.objective(successes), torch.tensor(expected))
    torch.testing.assert_close(tolerance(target=0.075).objective(successes), torch.tensor([1.0, 21.0]))
