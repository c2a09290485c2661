"""FrankaCubePush: observations by index, rewards and ends of states put there by hand."""

import math
from typing import Any

import pytest
import torch
from tasks.franka_states import CLOSE, CPU, FAR, HOME, LOW_POSE, closeness, grip, put, tilt
from tasks.states import begun
from torch import Tensor

from echelon.errors import UserError
from echelon.tasks.franka_push import FrankaCubePush, FrankaCubePushConfig


def pushed(errors: Tensor, height: float | Tensor = 1.05, **settings: Any) -> FrankaCubePush:
    """The cube off the goal by `errors [N, 2]`, its centre at this height."""
    env = begun(FrankaCubePush, FrankaCubePushConfig(**settings), len(errors))
    goal = torch.tensor(FAR).repeat(len(errors), 1)
    cube = goal.clone()
    cube[:, :2] -= errors
    cube[:, 2] = height
    put(env, cube, goal)
    return env


def test_observation_by_index() -> None:
    env = begun(FrankaCubePush, FrankaCubePushConfig(), 2)
    cube = torch.tensor([(0.1, -0.2, 1.05, 1, 0, 0, 0), (-0.15, 0.05, 1.3, 0.5, -0.5, 0.1, 0.7)])
    cube[1, 3:] /= cube[1, 3:].norm()
    goal = torch.tensor([(-0.1, 0.2, 1.05), (0.25, 0.0, 1.05)])
    put(env, cube, goal, torch.tensor((HOME, LOW_POSE)))
    env.engine.qpos[:, -2:] = torch.tensor([(0.01, 0.02), (0.04, 0.03)])
    obs = env.observe()["policy"]
    assert obs.shape == (2, 19)
    torch.testing.assert_close(obs[:, 0:3], cube[:, 4:7])  # x y z w
    torch.testing.assert_close(obs[:, 3], cube[:, 3])
    torch.testing.assert_close(obs[:, 4:7], cube[:, :3])
    torch.testing.assert_close(obs[:, 7:10], torch.tensor([(-0.2, 0.4, 0.0), (0.4, -0.05, -0.25)]), **CLOSE)
    for row, pose in enumerate((HOME, LOW_POSE)):
        torch.testing.assert_close(obs[row, 10:13], grip(pose).float(), **CLOSE)
        half = 0.5 * tilt(pose)
        torch.testing.assert_close(obs[row, 13:17], torch.tensor((math.cos(half), 0.0, math.sin(half), 0.0)), **CLOSE)
    torch.testing.assert_close(obs[:, 17:19], torch.tensor([(0.01, 0.02), (0.04, 0.03)]))


def test_observation_is_clipped() -> None:
    env = pushed(torch.tensor([(0.0, 0.0)]), height=-20.0)
    obs = env.observe()["policy"]
    assert (obs[0, 6], obs[0, 9]) == (-5.0, 5.0)


def test_reward_of_a_step_on_the_way() -> None:
    """Height and turn of the cube do not matter."""
    env = pushed(torch.tensor([(0.3, 0.4), (-0.03, 0.04), (0.0, 0.0051), (0.03, 0.0)]))
    env.engine.qpos[3, 2], env.engine.qpos[3, 3:7] = 1.11, torch.tensor((0.6, 0, 0, 0.8)).double()
    expected = [2 * closeness(e) for e in (0.5, 0.05, 0.0051, 0.03)]
    assert expected[0] < 1e-3 < 1.0 < expected[1]
    torch.testing.assert_close(env.reward(torch.ones(4, 7)), torch.tensor(expected), **CLOSE)
    assert not env.failed().any()
    assert not env.succeeded().any()
    figures = env.log()
    torch.testing.assert_close(figures["distance"], torch.tensor((0.5, 0.05, 0.0051, 0.03)), **CLOSE)
    torch.testing.assert_close(figures["reward/align"], torch.tensor(expected), **CLOSE)
    for name in ("reward/success", "reward/end", "lifted", "episode/successes"):
        assert not figures[name].any()


def test_success_pays_four_for_each_step_that_is_left() -> None:
    env = pushed(torch.tensor([(0.003, 0.0039), (0.0, 0.0), (0.0, -0.0049), (0.0, 0.0)]))
    env.engine.qpos[3, 2] = 1.3  # lifted above the goal: reached all the same
    env.clock[:] = torch.tensor((1, 100, 299, 150))
    torch.testing.assert_close(env.reward(torch.zeros(4, 7)), torch.tensor((1196.0, 800.0, 4.0, 600.0)))
    assert env.failed().all()
    figures = env.log()
    assert figures["episode/successes"].all()
    assert not figures["reward/align"].any()
    assert not figures["reward/end"].any()


def test_an_end_without_success_costs() -> None:
    errors = torch.tensor([(0.05, 0.0)] * 4)
    # Centre 90 mm above the table is the limit: 25 mm is lying, 89.9 mm not yet lifted, 90.1 mm lifted.
    env = pushed(errors, height=torch.tensor((1.05, 1.025 + 0.0899, 1.025 + 0.0901, 1.05)))
    env.clock[:] = torch.tensor((298, 5, 5, 299))
    near = closeness(0.05)
    expected = torch.tensor((2 * near, 2 * near, 5 * (near - 1), 5 * (near - 1)))
    torch.testing.assert_close(env.reward(torch.zeros(4, 7)), expected, **CLOSE)
    assert env.failed().tolist() == [False, False, True, False]
    figures = env.log()
    assert figures["lifted"].tolist() == [0, 0, 1, 0]
    assert figures["episode/successes"].sum() == 0
    torch.testing.assert_close(figures["reward/end"], torch.tensor((0, 0, 5 * (near - 1), 5 * (near - 1))), **CLOSE)


def test_a_step_counts_its_own_time() -> None:
    """The clock is 1 in the first step's reward, and 299 in the last one's."""
    env = pushed(torch.tensor([(0.0, 0.0), (0.1, 0.0), (0.1, 0.0), (0.1, 0.0)]))
    env.engine.qpos[2, 2] = 1.3
    env.clock[:] = torch.tensor((0, 298, 10, 297))
    step = env.step(torch.zeros(4, 7))
    assert step.terminated.tolist() == [True, False, True, False]
    assert step.truncated.tolist() == [False, True, False, False]
    near = closeness(0.1)
    expected = torch.tensor((4.0 * 299, 5 * (near - 1), 5 * (near - 1), 2 * near))
    torch.testing.assert_close(step.reward, expected, atol=1e-3, rtol=1e-4)
    assert step.log["episode/successes"].tolist() == [1, 0, 0, 0]
    assert env.clock.tolist() == [0, 0, 0, 298]


def test_a_bad_simulation_is_no_success() -> None:
    env = pushed(torch.tensor([(0.0, 0.0), (0.0, 0.0)]))
    env.reward(torch.zeros(2, 7))
    env.engine.bad[0] = True
    figures = env.log()
    assert figures["episode/successes"].tolist() == [0, 1]
    assert figures["reward/success"][0] == 0
    assert figures["reward/success"][1] > 0


def test_the_goal_is_shown_and_lasts_an_episode() -> None:
    env = begun(FrankaCubePush, FrankaCubePushConfig(episode_length=10), 3)
    first = env.kept["goal"].clone()
    env.clock[:] = torch.tensor((0, 9, 0))
    step = env.step(torch.zeros(3, 7))
    assert step.truncated.tolist() == [False, True, False]
    assert (env.kept["goal"] == first).all(dim=1).tolist() == [True, False, True]
    torch.testing.assert_close(env.engine.mocap_pos[:, 0].float(), env.kept["goal"][:, :3])
    torch.testing.assert_close(env.engine.mocap_quat[:, 0].float(), env.kept["goal"][:, 3:])
    # The observation before the reset still has the old goal.
    seen = step.final_obs["policy"][:, 7:10] + step.final_obs["policy"][:, 4:7]
    torch.testing.assert_close(seen, first[:, :3], **CLOSE)


@pytest.mark.parametrize("edge", [0.599, 0.66])
def test_a_cube_over_the_tables_edge_falls_to_the_floor(edge: float) -> None:
    env = pushed(torch.tensor([(0.3, 0.0)]))
    put(env, torch.tensor([(0.0, edge, 1.05)]), torch.tensor([FAR]))
    for _ in range(90):
        env.step(torch.zeros(1, 7))
    expected = 1.05 if edge < 0.6 else 0.025
    assert env.engine.qpos[0, 2] == pytest.approx(expected, abs=2e-3)


def test_a_cube_counts_as_moved_from_where_its_episode_began() -> None:
    env = begun(FrankaCubePush, FrankaCubePushConfig(), 4)
    assert env.log()["episode/moved"].tolist() == [0.0, 0.0, 0.0, 0.0]
    env.engine.qpos[0, 0] += 0.0051
    env.engine.qpos[1, 1] -= 0.0049
    env.engine.qpos[2, 2] += 0.03  # raised, which is no push
    env.engine.qpos[3, :2] += 0.2
    env.engine.bad[3] = True
    assert env.log()["episode/moved"].tolist() == [1.0, 0.0, 0.0, 0.0]
    env.engine.qpos[0, 0] -= 0.0051
    assert env.log()["episode/moved"][0].item() == 1.0  # it was, within the episode
    env.engine.bad[3] = False
    env._begin(torch.tensor([True, False, False, True]))
    assert env.log()["episode/moved"].tolist() == [0.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("start_spread", 0.05, "--env.start-spread must be above 0.05, not 0.05"),
        ("start_spread", -1.0, "--env.start-spread must be above 0.05, not -1"),
        ("start_yaw", -0.1, "--env.start-yaw must be at least 0, not -0.1"),
        ("joint_spread", -0.1, "--env.joint-spread must be at least 0, not -0.1"),
    ],
)
def test_starts_that_cannot_be_are_refused(name: str, value: float, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        FrankaCubePush(FrankaCubePushConfig(**{name: value}), 1, CPU, 0)
