"""Hopper: observations, rewards, falls and figures of states put there by hand."""

import torch
from tasks.states import begun, put
from torch import Tensor

from echelon.tasks.hopper.task import Hopper

TORSO = 1.2  # height of the torso in the model at qpos 0


def in_state(qpos: Tensor, qvel: Tensor | None = None) -> Hopper:
    """`qpos [N, 6]`: x, z, pitch, hip, knee, ankle."""
    return put(begun("Hopper", len(qpos)), qpos, qvel)


def standing(count: int) -> Tensor:
    return torch.tensor(Hopper.stance).repeat(count, 1)


def test_observation_and_reward() -> None:
    """Without x and with clipped velocities; capped velocity plus alive less effort."""
    qpos = torch.tensor([[7.0, 0.1, 0.2, -0.3, 0.4, 0.5]])
    qvel = torch.tensor([[1.0, -2.0, 3.0, 25.0, -25.0, 0.5]])
    expected = torch.tensor([[TORSO + 0.1, 0.2, -0.3, 0.4, 0.5, 1.0, -2.0, 3.0, 10.0, -10.0, 0.5]])
    torch.testing.assert_close(in_state(qpos, qvel).observe()["policy"], expected)
    qvel = torch.zeros(3, 6)
    qvel[:, 0] = torch.tensor([1.5, 9.0, -1.0])
    action = torch.tensor([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0], [0.5, -0.5, 1.0]])
    # Mean squares 0, 1 and (0.25 + 0.25 + 1) / 3 = 0.5, times 0.05.
    expected = torch.tensor([1.5 + 1.0, 2.0 + 1.0 - 0.05, -1.0 + 1.0 - 0.025])
    torch.testing.assert_close(in_state(standing(3), qvel).reward(action), expected)


def test_a_fall_terminates_and_starts_on_its_foot_again() -> None:
    """Too low or tilted."""
    qpos = standing(5)
    qpos[1, 1], qpos[2, 1], qpos[3, 2], qpos[4, 2] = 0.69 - TORSO, 0.71 - TORSO, 0.61, -0.61
    assert in_state(qpos).failed().tolist() == [False, True, False, True, True]
    qpos = standing(3)
    qpos[1, 2], qpos[:, 0] = 0.8, 4.0
    env = in_state(qpos)
    env.clock[:] = torch.tensor([10, 499, 499])
    step = env.step(torch.zeros(3, 3))
    assert step.terminated.tolist() == [False, True, False]
    assert step.truncated.tolist() == [False, False, True]  # the fall on the last step is a fall
    assert env.clock.tolist() == [11, 0, 0]
    torch.testing.assert_close(step.log["episode/distance"], torch.full((3,), 4.0), atol=0.1, rtol=0)
    assert (env.engine.qpos[:, 0] > 1).tolist() == [True, False, False]
    assert step.final_obs["policy"][1, 1] > 0.5  # the pitch before the reset
    assert step.obs["policy"][1, 1].abs() < 0.1
    env = begun("Hopper", 1, start_noise=0.0)
    env.step(torch.zeros(1, 3))
    # The capsule's axis lies one radius (0.05 m) above its lowest point; standing means the sole is near the floor.
    assert abs(env.engine.read("geom_xpos")[0, env.engine.model.geom("foot").id, 2] - 0.05) < 0.03
    env = begun("Hopper", 4)
    fallen = torch.stack([env.step(torch.zeros(4, 3)).terminated for _ in range(100)])
    assert fallen.any(dim=0).all()
    assert not fallen[:5].any()
