"""Humanoid: progress, falls, starts and torques."""

import math

import torch
from tasks.states import begun, check_spread, put
from torch import Tensor

from echelon.tasks.humanoid.task import Humanoid, HumanoidConfig

DT = 0.0166

# Joint limits in degrees and efforts in N·m, in the order of actions.
LEG_EFFORT, ARM_EFFORT = [45, 45, 135, 90, 22.5, 22.5], [67.5, 67.5, 45]
EFFORT = torch.tensor([67.5, 67.5, 67.5, *LEG_EFFORT, *LEG_EFFORT, *ARM_EFFORT, *ARM_EFFORT])


def standing(count: int) -> tuple[Tensor, Tensor]:
    """`qpos [N, 28]` and `qvel [N, 27]` of the model's zero pose."""
    qpos = torch.zeros(count, 28, dtype=torch.float64)
    qpos[:, 2], qpos[:, 3] = 1.34, 1.0
    return qpos, torch.zeros(count, 27, dtype=torch.float64)


def in_state(qpos: Tensor, qvel: Tensor) -> Humanoid:
    """A task in these states, whose last step did not move."""
    env = put(begun(Humanoid, HumanoidConfig(), len(qpos)), qpos, qvel)
    env.control(torch.zeros(len(qpos), 21))
    return env


def test_progress_is_exact_far_from_the_start_and_counts_the_way_to_the_target() -> None:
    qpos, qvel = standing(2)
    qpos[:, 0], qpos[:, 1] = 100.0, 300.0
    env = in_state(qpos, qvel)
    qpos[0, 0] += 0.0166 * 0.01
    qpos[1, 1] += 0.0166 * 2.0
    env.engine.set_state(torch.ones(2, dtype=torch.bool), qpos, qvel)
    distance = math.hypot(900.0, 300.0)
    expected = torch.tensor([0.01 * 900.0 / distance, -2.0 * 300.0 / distance])
    torch.testing.assert_close(env.progress(), expected, atol=1e-4, rtol=0)


def test_falls_terminate_and_the_clock_truncates() -> None:
    qpos, qvel = standing(3)
    qpos[1, 2], qpos[1, 3:7] = 0.7, torch.tensor((0.5**0.5, 0.0, 0.5**0.5, 0.0))  # lying in the air, face down
    qpos[:, 0] = 4.0
    env = in_state(qpos, qvel)
    env.clock[:] = torch.tensor([10, 999, 999])
    step = env.step(torch.full((3, 21), 0.25))
    assert step.terminated.tolist() == [False, True, False]
    assert step.truncated.tolist() == [False, False, True]
    assert step.reward[1] == -1
    assert env.clock.tolist() == [11, 0, 0]
    torch.testing.assert_close(step.log["episode/distance"], torch.full((3,), 4.0), atol=0.05, rtol=0)
    # The observation of a new episode has no action before it; the final one of the old has.
    assert (step.final_obs["policy"][:, 87:] == 0.25).all()
    assert (step.obs["policy"][0, 87:] == 0.25).all()
    assert (step.obs["policy"][1:, 87:] == 0).all()
    torch.testing.assert_close(step.obs["policy"][1:, 0], torch.full((2,), 1.34))
    # Coming back to the start is no progress of the new episode.
    assert env.step(torch.zeros(3, 21)).log["reward/progress"].abs().max() < 1.0


def test_starts() -> None:
    env = begun(Humanoid, HumanoidConfig(), 2000)
    qpos, qvel = env.engine.qpos, env.engine.qvel
    assert (qpos[:, :7] == torch.tensor((0, 0, 1.34, 1, 0, 0, 0)).float().double()).all()
    assert (qvel[:, :6] == 0).all()
    high, others = torch.full((21,), 0.2), [joint for joint in range(21) if joint not in (6, 12)]
    high[[6, 12]] = math.radians(2)  # the knees' stops, to the four digits of the model
    check_spread(qpos[:, 7:], -0.2, high + 1e-4)
    check_spread(qvel[:, 6:], -0.1, 0.1)
    assert abs(qpos[:, 7:][:, others].mean()) < 0.005


def test_control_rate_and_torques() -> None:
    env = in_state(*standing(1))
    assert math.isclose(env.dt, DT, rel_tol=1e-9)
    env.step(torch.ones(1, 21))
    torch.testing.assert_close(env.engine.read("qfrc_actuator")[0, 6:].float(), EFFORT)
