"""Observations of the AllegroKuka tasks, column by column."""

import math

import pytest
import torch
from tasks.allegro_kuka.states import REGRASPING, REORIENTATION, THROW, TWO_ARMS, aim, begun, put, turn
from torch import Tensor

from echelon.tasks.allegro_kuka.task import AllegroKuka

PLACE = torch.tensor([0.05, -0.1, 0.7])
GOAL = torch.tensor([0.1, 0.2, 0.9])
# A quarter about z: the object's x is the world's y, its y is the world's -x.
QUARTER = turn((0.0, 0.0, 1.0), math.pi / 2)


def crafted(task: str) -> AllegroKuka:
    env = begun(task, 2, seed=3)
    put(env, PLACE, QUARTER, velocity=(0.1, -0.2, 0.3, 4.0, 5.0, 6.0))
    env.engine.qvel[:, 6:] = torch.linspace(-2, 2, env.action_dim)
    env.engine.set_state(torch.ones(2, dtype=torch.bool), env.engine.qpos.clone(), env.engine.qvel.clone())
    aim(env, GOAL, turn((1.0, 0.0, 0.0), math.pi / 2) if task in (REORIENTATION, TWO_ARMS) else (1.0, 0.0, 0.0, 0.0))
    env.progress.best_distance[:] = 0.33
    env.progress.best_reach[:] = torch.arange(1, env.progress.best_reach.shape[1] + 1) / 10
    env.progress.lifted[:] = torch.tensor([True, False])
    env.kept["successes"][:] = 4.0
    env._update_observed_progress(torch.ones(2, dtype=torch.bool))
    env.kept["reward"][:] = 250.0
    env.clock[:] = 45
    return env


def keypoints(scales: Tensor) -> tuple[Tensor, Tensor]:
    """`[N, 4, 3]` each: the object's and the goal's, for corners ±0.0375 s of its frame, turned by hand."""
    corners = torch.tensor([[1.0, 1, 1], [1, 1, -1], [-1, -1, 1], [-1, -1, -1]])
    x, y, z = (0.0375 * scales[:, None] * corners).unbind(2)
    about_z = torch.stack((-y, x, z), dim=2)
    about_x = torch.stack((x, -z, y), dim=2)
    return PLACE + about_z, GOAL + about_x


def check(env: AllegroKuka, expected: dict[tuple[int, int], Tensor], width: int) -> None:
    obs = env.observe()["policy"]
    assert obs.shape == (2, width)
    assert [start for start, _ in expected] == [0, *[end for _, end in expected][:-1]]
    assert list(expected)[-1][1] == width
    for (start, end), values in expected.items():
        wanted = values.reshape(-1, end - start) if values.dim() else values.expand(2, end - start)
        torch.testing.assert_close(
            obs[:, start:end], wanted.expand(2, -1), rtol=1e-4, atol=1e-4, msg=f"columns {start} to {end}"
        )


OBJECT = torch.tensor([0.0, 0.0, math.sqrt(0.5), math.sqrt(0.5), 0.1, -0.2, 0.3, -5.0, 4.0, 6.0])


def joint_columns(env: AllegroKuka) -> tuple[Tensor, Tensor]:
    """Angles with their ranges as [-1, 1], and velocities."""
    model = env.engine.model
    low, high = torch.tensor(model.jnt_range[1:]).unbind(1)
    angles = env.engine.qpos[:, 7:]
    return (2 * (angles - low) / (high - low) - 1).float(), torch.linspace(-2, 2, env.action_dim)


def test_reorientation() -> None:
    env = crafted(REORIENTATION)
    palms, (at, to) = env.arms.palms(), keypoints(env.scales)
    centre = palms.centre[:, 0]
    assert env.scales[0].tolist() == [4.0, 0.75, 1.0]
    angles, speeds = joint_columns(env)
    expected = {
        (0, 23): angles,
        (23, 46): speeds,
        (46, 49): centre,
        (49, 59): palms.motion[:, 0],
        (59, 69): OBJECT,  # MuJoCo's turning rate (4, 5, 6) is in the object's frame
        (69, 81): palms.fingertips[:, 0] - centre[:, None],
        (81, 93): at - centre[:, None],
        (93, 105): at - to,
        (105, 108): env.scales,
        (108, 109): torch.tensor(0.33),
        (109, 113): torch.tensor([0.1, 0.2, 0.3, 0.4]),
        (113, 114): torch.tensor([[1.0], [0.0]]),
        (114, 115): torch.tensor(math.log(5.5)),
        (115, 116): torch.tensor(math.log(5.0)),
        (116, 117): torch.tensor(2.5),
    }
    check(env, expected, 117)


@pytest.mark.parametrize("task", [REGRASPING, THROW])
def test_one_keypoint_is_the_centre(task: str) -> None:
    env = crafted(task)
    palms, (angles, speeds) = env.arms.palms(), joint_columns(env)
    centre = palms.centre[:, 0]
    expected = {
        (0, 23): angles,
        (23, 46): speeds,
        (46, 49): centre,
        (49, 59): palms.motion[:, 0],
        (59, 69): OBJECT,
        (69, 81): palms.fingertips[:, 0] - centre[:, None],
        (81, 84): PLACE - centre,
        (84, 87): PLACE - GOAL,
        (87, 90): env.scales,
        (90, 91): torch.tensor(0.33),
        (91, 95): torch.tensor([0.1, 0.2, 0.3, 0.4]),
        (95, 96): torch.tensor([[1.0], [0.0]]),
        (96, 97): torch.tensor(math.log(5.5)),
        (97, 98): torch.tensor(math.log(5.0)),
        (98, 99): torch.tensor(2.5),
    }
    check(env, expected, 99)


def test_two_arms() -> None:
    env = crafted(TWO_ARMS)
    palms, (at, to), (angles, speeds) = env.arms.palms(), keypoints(env.scales), joint_columns(env)
    one, two = palms.centre.unbind(1)
    expected = {
        (0, 46): angles,
        (46, 92): speeds,
        (92, 95): one,
        (95, 98): two,
        (98, 108): palms.motion[:, 0],
        (108, 118): palms.motion[:, 1],
        (118, 128): OBJECT,
        (128, 140): palms.fingertips[:, 0] - one[:, None],
        (140, 152): palms.fingertips[:, 1] - two[:, None],
        (152, 164): at - one[:, None],
        (164, 176): at - two[:, None],
        (176, 188): at - to,
        (188, 191): env.scales,
        (191, 192): torch.tensor(0.33),
        (192, 193): torch.tensor([[1.0], [0.0]]),
        (193, 194): torch.tensor(math.log(5.5)),
        (194, 195): torch.tensor(math.log(5.0)),
        (195, 196): torch.tensor(2.5),
    }
    check(env, expected, 196)


def test_observations_are_clipped_at_ten() -> None:
    env = crafted(REORIENTATION)
    env.engine.qvel[:, 0] = -40.0
    env.kept["reward"][:] = 1300.0
    obs = env.observe()["policy"]
    assert obs[:, 63].eq(-10.0).all()
    assert obs[:, 116].eq(10.0).all()


def test_what_is_told_is_from_before_the_steps_reward() -> None:
    """As in the reference: best distances, flag and successes lag a step; clock and reward do not."""
    env = begun(REORIENTATION, 1, force_scale=0.0)
    put(env, torch.tensor([0.0, 0.0, 0.9]))
    aim(env, (0.0, 0.0, 1.6))
    env.progress.new_goal(torch.ones(1, dtype=torch.bool), torch.tensor([1.0]))
    step = env.step(torch.zeros(1, 23))
    first = step.obs["policy"][0]
    assert first[108] == 1.0  # though 0.7 m is known by now
    assert env.progress.best_distance.item() < 0.8
    assert (first[113], env.progress.lifted.item()) == (0.0, True)
    assert first[114].item() == pytest.approx(math.log(1.1))
    assert step.log["reward/lift_bonus"].item() == 300.0
    assert first[116].item() == pytest.approx(0.01 * step.reward.item())
    best = env.progress.best_distance.item()
    second = env.step(torch.zeros(1, 23)).obs["policy"][0]
    assert second[108].item() == pytest.approx(best)
    assert second[113] == 1.0
