"""FrankaCubePush and FrankaCubeStack: ends of episodes, and what an episode remembers."""

import pytest
import torch
from tasks.franka_cube.states import FAR, PUSH, STACK, put
from tasks.states import begun

BASE = torch.tensor((FAR[0], FAR[1], 1.06))
AWAY = torch.tensor((-0.2, -0.3, 1.06))
LOW, HIGH = torch.tensor(FAR), torch.tensor((FAR[0], FAR[1], 1.4))


def test_an_episode_remembers_that_the_cube_was_lifted_or_moved() -> None:
    env = begun(STACK, 2)
    first = put(env, torch.stack((HIGH, LOW)), AWAY).step(torch.zeros(2, 7))
    assert first.log["episode/lifted"].tolist() == first.log["lifted"].tolist() == [1, 0]
    put(env, LOW, AWAY)
    env.clock[:] = 298
    last = env.step(torch.zeros(2, 7))
    assert last.log["lifted"].tolist() == [0, 0]
    assert last.log["episode/lifted"].tolist() == [1, 0]
    assert last.truncated.all()
    assert not env.totals["lifted"].any()
    env = begun(PUSH, 4)
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


def test_cubes_rest_on_each_other_or_fall_to_the_floor_and_a_bad_simulation_is_no_success() -> None:
    """A stack is one if the height of a resting pair is right to within the tolerance."""
    env = put(begun(STACK, 1), BASE + torch.tensor((0.01, 0.0, 0.0605)), BASE)
    env.engine.step(20 * env.substeps)
    assert env.height().item() == pytest.approx(0.095, abs=1e-4)
    assert env.succeeded().all()
    assert env.engine.qvel[:, :12].abs().max() < 1e-3
    env = put(begun(PUSH, 2), torch.tensor([(0.0, 0.599, 1.05), (0.0, 0.66, 1.05)]), AWAY)
    for _ in range(90):
        env.step(torch.zeros(2, 7))
    assert env.engine.qpos[:, 2].tolist() == pytest.approx([1.05, 0.025], abs=2e-3)
    env = put(begun(PUSH, 2), FAR, FAR)
    env.reward(torch.zeros(2, 7))
    env.engine.bad[0] = True
    figures = env.log()
    assert figures["episode/successes"].tolist() == [0, 1]
    assert (figures["reward/success"] > 0).tolist() == [False, True]


def test_the_goal_is_shown_and_lasts_an_episode() -> None:
    env = begun(PUSH, 3, episode_length=10)
    first = env.kept["goal"].clone()
    env.clock[:] = torch.tensor((0, 9, 0))
    step = env.step(torch.zeros(3, 7))
    assert step.truncated.tolist() == [False, True, False]
    assert (env.kept["goal"] == first).all(dim=1).tolist() == [True, False, True]
    torch.testing.assert_close(env.engine.mocap_pos[:, 0].float(), env.kept["goal"][:, :3])
    torch.testing.assert_close(env.engine.mocap_quat[:, 0].float(), env.kept["goal"][:, 3:])
    # The observation before the reset still has the old goal.
    seen = step.final_obs["policy"][:, 7:10] + step.final_obs["policy"][:, 4:7]
    torch.testing.assert_close(seen, first[:, :3], atol=1e-5, rtol=1e-5)
