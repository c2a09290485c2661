"""Where objects start and goals are, over many draws."""

import pytest
import torch
from tasks.allegro_kuka.states import REGRASPING, REORIENTATION, THROW, TWO_ARMS
from tasks.states import check_spread

from echelon import tasks
from echelon.tasks.allegro_kuka import objects
from echelon.tasks.allegro_kuka.draws import Draws
from echelon.tasks.mujoco_task import Rng

COUNT = 6000
SCALES = torch.tensor((objects.shuffled(objects.small(), objects.big(), objects.sticks()) * 7)[:COUNT])


def drawing(task: str) -> Draws:
    kind, turned = tasks.info(task).task, tasks.info(task).preset.env.keypoints > 1
    rng = Rng(torch.Generator().manual_seed(0), len(SCALES))
    return Draws(kind.object_starts, kind.goal_places, SCALES, turned, rng)


@pytest.mark.parametrize(
    ("task", "low", "high", "sides"),
    [
        (REGRASPING, (-0.4, 0.0, 0.68), (0.4, 0.35, 1.05), ()),
        (REORIENTATION, (-0.4, 0.0, 0.68), (0.4, 0.35, 1.05), ()),
        (THROW, (0.5, -1.0, 0.05), (0.9, 0.7, 1.05), (-1.0, 1.0)),
        (TWO_ARMS, (0.55, -0.5, 0.68), (0.95, 0.5, 1.05), (-1.0, 1.0)),
    ],
)
def test_goals(task: str, low: tuple, high: tuple, sides: tuple) -> None:
    goal, turned = drawing(task).goals()
    goal[:, 2] += tasks.info(task).task.above_marker
    if sides:
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
    raised = (place[:, 2] > 0.65 + 1e-6).float().mean().item()
    assert 0.005 < raised < 0.1  # those that would reach into the table
    inside = place[:, 2] <= 0.65 + 1e-6
    assert place[inside, 2].min() >= 0.61 - 1e-6
    assert (pose[:, 3:].mT @ pose[:, 3:] / COUNT - torch.eye(4) / 4).abs().max() < 0.03
