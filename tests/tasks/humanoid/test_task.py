"""Humanoid: progress, falls, starts and torques. Rewards and observations are compared in `originals`."""

import math

import torch
from tasks.originals.locomotion import DT, EFFORT
from tasks.states import begun, check_spread, put
from torch import Tensor

from echelon.config import RandomiseConfig
from echelon.tasks.humanoid.task import Humanoid


def standing(count: int) -> Tensor:
    """`qpos [N, 28]` of the model's zero pose."""
    qpos = torch.zeros(count, 28, dtype=torch.float64)
    qpos[:, 2], qpos[:, 3] = 1.34, 1.0
    return qpos


def in_state(qpos: Tensor) -> Humanoid:
    """A task in these states at rest, whose last step did not move."""
    env = put(begun("Humanoid", len(qpos)), qpos)
    env.control(torch.zeros(len(qpos), 21))
    return env


def test_progress_counts_the_way_to_the_target_and_falls_terminate() -> None:
    qpos = standing(2)
    qpos[:, 0], qpos[:, 1] = 100.0, 300.0
    env = in_state(qpos)
    qpos[0, 0] += 0.0166 * 0.01
    qpos[1, 1] += 0.0166 * 2.0
    put(env, qpos)
    distance = math.hypot(900.0, 300.0)
    expected = torch.tensor([0.01 * 900.0 / distance, -2.0 * 300.0 / distance])
    torch.testing.assert_close(env.progress(), expected, atol=1e-4, rtol=0)
    qpos = standing(3)
    qpos[1, 2], qpos[1, 3:7] = 0.7, torch.tensor((0.5**0.5, 0.0, 0.5**0.5, 0.0))  # lying in the air, face down
    qpos[:, 0] = 4.0
    env = in_state(qpos)
    env.clock[:] = torch.tensor([10, 999, 999])
    step = env.step(torch.full((3, 21), 0.25))
    assert step.terminated.tolist() == [False, True, False]
    assert step.truncated.tolist() == [False, False, True]
    assert step.reward[1] == -1
    assert env.clock.tolist() == [11, 0, 0]
    torch.testing.assert_close(step.log["episode/distance"], torch.full((3,), 4.0), atol=0.05, rtol=0)
    # The observation of a new episode has no action before it; the final one of the old has.
    assert (step.final_obs["policy"][:, 87:] == 0.25).all()
    assert (step.obs["policy"][:, 87:] == torch.tensor([[0.25], [0.0], [0.0]])).all()
    torch.testing.assert_close(step.obs["policy"][1:, 0], torch.full((2,), 1.34))
    # Coming back to the start is no progress of the new episode.
    assert env.step(torch.zeros(3, 21)).log["reward/progress"].abs().max() < 1.0


def test_the_observed_action_is_the_one_sent() -> None:
    """Not what reaches the motors, which is late and noisy; torques are those of the motors."""
    env = begun("Humanoid", 3, randomise=RandomiseConfig(action_delay=(0.05, 0.05), action_noise=(0.1, 0.1)))
    for value in (0.1, 0.2, 0.3):
        seen = env.step(torch.full((3, 21), value)).obs["policy"]
    assert (seen[:, 87:] == 0.3).all()
    assert (env.engine.ctrl < 0.25).float().mean() > 0.8  # about 0.1 with a deviation of 0.1


def test_starts_control_rate_and_torques() -> None:
    env = begun("Humanoid", 2000)
    qpos, qvel = env.engine.qpos, env.engine.qvel
    assert (qpos[:, :7] == torch.tensor((0, 0, 1.34, 1, 0, 0, 0)).float().double()).all()
    assert (qvel[:, :6] == 0).all()
    high, others = torch.full((21,), 0.2), [joint for joint in range(21) if joint not in (6, 12)]
    high[[6, 12]] = math.radians(2)  # the knees' stops, to the four digits of the model
    check_spread(qpos[:, 7:], -0.2, high + 1e-4)
    check_spread(qvel[:, 6:], -0.1, 0.1)
    assert abs(qpos[:, 7:][:, others].mean()) < 0.005
    env = in_state(standing(1))
    assert math.isclose(env.dt, DT, rel_tol=1e-9)
    env.step(torch.ones(1, 21))
    torch.testing.assert_close(env.engine.read("qfrc_actuator")[0, 6:].float(), torch.tensor(EFFORT).float())
