"""Humanoid: observations by index, rewards term by term, falls and starts of states put there by hand."""

import math

import torch
from tasks.states import begun, check_spread, put
from torch import Tensor

from echelon.tasks.humanoid import Humanoid, HumanoidConfig

DT = 0.0166
CLOSE = {"atol": 1e-5, "rtol": 1e-5}

# Joint limits in degrees and efforts in N·m, in the order of actions.
LEG = [(-45, 15), (-60, 35), (-120, 45), (-160, 2), (-50, 50), (-50, 50)]
ARM = [(-90, 70), (-90, 70), (-90, 50)]
LIMITS = torch.tensor([(-45, 45), (-75, 30), (-35, 35), *LEG, *LEG, *ARM, *ARM]).deg2rad()
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


def turned(roll: float = 0.0, pitch: float = 0.0, yaw: float = 0.0) -> Tensor:
    """`[4]`: wxyz of Rz(yaw) Ry(pitch) Rx(roll)."""
    (cr, sr), (cp, sp), (cy, sy) = ((math.cos(a / 2), math.sin(a / 2)) for a in (roll, pitch, yaw))
    return torch.tensor(
        (
            cy * cp * cr + sy * sp * sr,
            cy * cp * sr - sy * sp * cr,
            cy * sp * cr + sy * cp * sr,
            sy * cp * cr - cy * sp * sr,
        ),
        dtype=torch.float64,
    )


def test_observation_of_the_torso() -> None:
    qpos, qvel = standing(3)
    qpos[0, :3] = torch.tensor((3.0, 0.0, 1.2))
    qpos[1, :3], qpos[1, 3:7] = torch.tensor((0.0, 1000.0, 1.3)), turned(yaw=math.pi / 2)
    qpos[2, 3:7] = turned(roll=0.3, pitch=-0.4, yaw=2.9)
    qvel[:, :6] = torch.tensor((1.0, 2.0, 3.0, 4.0, 8.0, -4.0))
    obs = in_state(qpos, qvel).observe()["policy"]
    assert obs.shape == (3, 108)
    torch.testing.assert_close(obs[:, 0], torch.tensor((1.2, 1.3, 1.34)))
    torch.testing.assert_close(obs[0, 1:4], torch.tensor((1.0, 2.0, 3.0)))
    torch.testing.assert_close(obs[1, 1:4], torch.tensor((2.0, -1.0, 3.0)), **CLOSE)  # turned to the left by 90°
    torch.testing.assert_close(obs[:, 4:7], torch.tensor((1.0, 2.0, -1.0)).expand(3, 3))  # MuJoCo's is the body's
    # Yaw, roll, angle to the target, up, heading.
    torch.testing.assert_close(obs[0, 7:12], torch.tensor((0.0, 0.0, 0.0, 1.0, 1.0)), **CLOSE)
    # The target is at (1000, -1000) from there: 45° to the right of x, 135° to the right of where it looks.
    slanted = torch.tensor((math.pi / 2, 0.0, -3 * math.pi / 4, 1.0, -math.sqrt(0.5)))
    torch.testing.assert_close(obs[1, 7:12], slanted, **CLOSE)
    up, ahead = math.cos(0.3) * math.cos(0.4), math.cos(2.9) * math.cos(0.4)
    torch.testing.assert_close(obs[2, 7:12], torch.tensor((2.9, 0.3, -2.9, up, ahead)), **CLOSE)


def test_angle_to_the_target_is_wrapped() -> None:
    qpos, qvel = standing(1)
    qpos[0, 0], qpos[0, 3:7] = 2000.0, turned(yaw=-3.0)  # behind the target, which is then at π: π + 3 - 2π
    assert math.isclose(in_state(qpos, qvel).observe()["policy"][0, 9].item(), 3.0 - math.pi, abs_tol=1e-5)


def test_observation_of_joints_forces_and_actions() -> None:
    qpos, qvel = standing(2)
    joints = LIMITS[:, 0] + (LIMITS[:, 1] - LIMITS[:, 0]) * torch.linspace(0.1, 0.9, 21)
    qpos[1, 7:], qvel[1, 6:] = joints, torch.linspace(-10.0, 10.0, 21)
    env = in_state(qpos, qvel)
    action = torch.linspace(-1.0, 1.0, 21).repeat(2, 1)
    env.engine.ctrl.copy_(action)
    obs = env.observe()["policy"]
    middle = -(LIMITS[:, 0] + LIMITS[:, 1]) / (LIMITS[:, 1] - LIMITS[:, 0])
    torch.testing.assert_close(obs[0, 12:33], middle, atol=1e-4, rtol=0)
    torch.testing.assert_close(obs[1, 12:33], torch.linspace(-0.8, 0.8, 21), atol=1e-4, rtol=0)
    torch.testing.assert_close(obs[1, 33:54], torch.linspace(-1.0, 1.0, 21), **CLOSE)
    torch.testing.assert_close(obs[0, 54:75], 0.01 * EFFORT * action[0], **CLOSE)
    # Left elbow, the last: 45 N·m of the motor, a spring of 2 N·m/rad, a damper of 1 N·m·s/rad.
    assert math.isclose(obs[1, 74].item(), 0.01 * (45 - 2 * joints[20].item() - 10), abs_tol=1e-5)
    # Right knee: spring 5, damper 0.1.
    knee = 90 * action[0, 6] - 5 * joints[6] + 0.1 * 4.0
    assert math.isclose(obs[1, 60].item(), 0.01 * knee.item(), abs_tol=1e-4)
    torch.testing.assert_close(obs[:, 87:108], action)


def test_observed_foot_wrenches_are_the_sensors() -> None:
    env = in_state(*standing(1))
    env.engine.sensordata.copy_(torch.arange(1.0, 13.0)[None])
    torch.testing.assert_close(env.observe()["policy"][0, 75:87], 0.01 * torch.arange(1.0, 13.0))
    model = env.engine.model
    assert [model.sensor(name).adr[0] for name in ("right_foot_force", "left_foot_force")] == [0, 6]
    assert [model.sensor(name).adr[0] for name in ("right_foot_torque", "left_foot_torque")] == [3, 9]


def test_reward_of_running_upright() -> None:
    """Row 0 stands and does nothing: 2 + 0.1 + 0.5. The others add one thing each."""
    qpos, qvel = standing(7)
    env = in_state(qpos, qvel)
    action = torch.zeros(7, 21)
    qpos[1, 0] = 5.0 * DT  # moved on by 5 m/s
    qpos[2, 3:7] = turned(pitch=0.4)  # up: cos 0.4 = 0.921 < 0.93, heading the same 0.921 > 0.8
    qpos[3, 3:7] = turned(yaw=1.2)  # heading: cos 1.2 = 0.362, so 0.5 · 0.362 / 0.8
    action[4] = 0.5  # 0.01 · 21 · 0.25 = 0.0525
    action[5, 5], qvel[5, 6 + 5] = 1.0, -4.0  # hip_y: 0.01 for the action, 0.05 · |1 · 0.1 · -4| · 1 = 0.02
    qpos[6, 7 + 6] = math.radians(2)  # right knee at its stop: 0.25 · (1 - 0.98) / 0.02 · 90 / 135
    env.engine.set_state(torch.ones(7, dtype=torch.bool), qpos, qvel)
    expected = torch.tensor(
        [2.6, 7.6, 2.5, 2.1 + 0.5 * math.cos(1.2) / 0.8, 2.6 - 0.0525, 2.6 - 0.03, 2.6 - 0.25 * 90 / 135]
    )
    torch.testing.assert_close(env.reward(action), expected, atol=2e-4, rtol=0)
    terms = env.log()
    torch.testing.assert_close(terms["reward/progress"][1], torch.tensor(5.0), **CLOSE)
    torch.testing.assert_close(terms["reward/action"][4], torch.tensor(-0.0525))
    torch.testing.assert_close(terms["reward/energy"][5], torch.tensor(-0.02))
    torch.testing.assert_close(terms["reward/limits"][6], torch.tensor(-0.25 * 90 / 135), atol=2e-4, rtol=0)


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


def test_a_fall_is_worth_minus_one_and_nothing_else() -> None:
    qpos, qvel = standing(3)
    qpos[:, 2] = torch.tensor((0.79, 0.81, 0.79))
    env = in_state(qpos, qvel)
    assert env.failed().tolist() == [True, False, True]
    reward = env.reward(torch.ones(3, 21))
    assert reward[[0, 2]].tolist() == [-1.0, -1.0]
    assert reward[1] > 1.0
    figures = env.log()
    assert figures["episode/fell"].tolist() == [1.0, 0.0, 1.0]
    assert figures["reward/alive"].tolist() == [0.0, 2.0, 0.0]


def test_falls_terminate_and_the_clock_truncates() -> None:
    qpos, qvel = standing(3)
    qpos[1, 2], qpos[1, 3:7] = 0.7, turned(pitch=math.pi / 2)  # lying in the air, face down
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
