"""FrankaCubePush: goals, falls, what counts as moved, settings."""

from typing import Any

import pytest
import torch
from tasks.franka_cube.states import CLOSE, FAR, put
from tasks.states import begun
from torch import Tensor

from echelon.tasks.franka_cube.task import FrankaCubePush, FrankaCubePushConfig


def pushed(errors: Tensor, height: float | Tensor = 1.05, **settings: Any) -> FrankaCubePush:
    """The cube off the goal by `errors [N, 2]`, its centre at this height."""
    env = begun(FrankaCubePush, FrankaCubePushConfig(**settings), len(errors))
    goal = torch.tensor(FAR).repeat(len(errors), 1)
    cube = goal.clone()
    cube[:, :2] -= errors
    cube[:, 2] = height
    put(env, cube, goal)
    return env


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
