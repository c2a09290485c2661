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


def by_hand(env: AllegroKuka) -> list[Tensor]:
    """The observation's parts, each `[2, K]` or `[K]`."""
    low, high = torch.tensor(env.engine.model.jnt_range[1:]).unbind(1)
    palms, arms = env.arms.palms(), range(env.arms.count)
    (at, to) = keypoints(env.scales) if env.config.keypoints > 1 else (PLACE.expand(2, 1, 3), GOAL.expand(2, 1, 3))
    return [
        (2 * (env.engine.qpos[:, 7:] - low) / (high - low) - 1).float(),
        torch.linspace(-2, 2, env.action_dim),
        palms.centre.flatten(1),
        palms.motion.flatten(1),
        # The object turned by a quarter, x y z w; MuJoCo's turning rate (4, 5, 6) is in its own frame.
        torch.tensor([0.0, 0.0, math.sqrt(0.5), math.sqrt(0.5), 0.1, -0.2, 0.3, -5.0, 4.0, 6.0]),
        *((palms.fingertips[:, arm] - palms.centre[:, arm, None]).flatten(1) for arm in arms),
        *((at - palms.centre[:, arm, None]).flatten(1) for arm in arms),
        (at - to).flatten(1),
        env.scales,
        torch.tensor([0.33]),
        torch.tensor([0.1, 0.2, 0.3, 0.4] if env.arms.count == 1 else []),
        torch.tensor([[1.0], [0.0]]),
        torch.tensor([math.log(5.5), math.log(5.0), 2.5]),
    ]


@pytest.mark.parametrize(("task", "width"), [(REORIENTATION, 117), (REGRASPING, 99), (THROW, 99), (TWO_ARMS, 196)])
def test_observation_by_index(task: str, width: int) -> None:
    """One keypoint is the object's centre; two arms are not told the fingers' best distances."""
    env = crafted(task)
    assert task == THROW or env.scales[0].tolist() == [4.0, 0.75, 1.0]
    obs, column = env.observe()["policy"], 0
    for part in by_hand(env):
        end = column + part.shape[-1]
        expected, where = part.expand(2, -1), f"columns {column} to {end}"
        torch.testing.assert_close(obs[:, column:end], expected, rtol=1e-4, atol=1e-4, msg=where)
        column = end
    assert obs.shape == (2, width)
    assert column == width


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
