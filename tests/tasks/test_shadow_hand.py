"""ShadowHand: what differs from AllegroHand, by index; and the shared reward, goals and drops once more by hand."""

import math

import mujoco
import numpy as np
import torch
from tasks.in_hand_states import aim, begun, put, turn

from echelon.tasks.shadow_hand import ShadowHand, ShadowHandConfig

GOAL = torch.tensor([0.0, -0.39, 0.56])
ABOVE = GOAL + torch.tensor([0.0, 0.0, 0.15])
UPRIGHT = turn((0.0, 0.0, 1.0), 0.0)
FINGER = ((-0.349, 0.349), (0.0, 1.571), (0.0, 1.571), (0.0, 1.571))
WRIST = ((-0.489, 0.14), (-0.698, 0.489))
THUMB = ((-1.047, 1.047), (0.0, 1.222), (-0.209, 0.209), (-0.524, 0.524), (-1.571, 0.0))
LIMITS = torch.tensor((*WRIST, *FINGER * 3, (0.0, 0.785), *FINGER, *THUMB))
FOLLOWING = [5, 9, 13, 18]  # FFJ0, MFJ0, RFJ0, LFJ0
DRIVEN = [joint for joint in range(24) if joint not in FOLLOWING]
TIPS = ("ffdistal", "mfdistal", "rfdistal", "lfdistal", "thdistal")


def make(num_envs: int) -> ShadowHand:
    return begun(ShadowHand, ShadowHandConfig(), num_envs)


def test_observation_by_index() -> None:
    env = make(1)
    joints = LIMITS[:, 0] + torch.linspace(0.2, 0.6, 24) * (LIMITS[:, 1] - LIMITS[:, 0])
    speeds = torch.linspace(-1.0, 1.0, 24)
    qpos, qvel = env.engine.qpos.clone(), torch.zeros_like(env.engine.qvel)
    qpos[0, env.joints[0]], qvel[0, env.joints[1]] = joints.double(), speeds.double()
    qvel[0, env.cube[1]] = torch.tensor([0.1, -0.2, 0.3, 4.0, 5.0, 6.0], dtype=torch.float64)
    qpos[0, env.cube[0]] = torch.cat((torch.tensor([0.01, -0.38, 0.6]), turn((0.0, 0.0, 1.0), math.pi / 2)))
    env.engine.set_state(torch.ones(1, dtype=torch.bool), qpos, qvel)
    env.engine.ctrl.copy_(joints[DRIVEN] + 0.02)
    env.kept["action"].copy_(torch.linspace(-1.0, 1.0, 20))
    aim(env, turn((1.0, 0.0, 0.0), math.pi / 2))
    obs = env.observe()["policy"][0]

    low, high = LIMITS.unbind(1)
    torques = torch.zeros(24)
    torques[DRIVEN] = 0.02  # 1 N m/rad on 0.02 rad; damping is the joints' own
    torques[:2] = 0.1  # 5 N m/rad at the wrist
    half = math.sqrt(0.5)
    expected = {
        (0, 24): (2 * joints - high - low) / (high - low),
        (24, 48): 0.2 * speeds,
        (48, 72): 10 * torques,
        (72, 75): torch.tensor([0.01, -0.38, 0.6]),
        (75, 79): torch.tensor([0.0, 0.0, half, half]),
        (79, 82): torch.tensor([0.1, -0.2, 0.3]),
        (82, 85): 0.2 * torch.tensor([-5.0, 4.0, 6.0]),
        (85, 88): GOAL,
        (88, 92): torch.tensor([half, 0.0, 0.0, half]),
        (92, 96): torch.tensor([-0.5, -0.5, 0.5, 0.5]),
        (191, 211): torch.linspace(-1.0, 1.0, 20),
    }
    for (start, end), values in expected.items():
        torch.testing.assert_close(obs[start:end], values, rtol=1e-4, atol=1e-5, msg=f"columns {start} to {end}")
    assert obs.shape == (211,)


def test_fingertips_are_the_poses_and_velocities_of_the_last_links() -> None:
    env = make(1)
    env.step(torch.full((1, 20), 0.4))
    obs = env.observe()["policy"][0, 96:161].reshape(5, 13).double().numpy()
    model = env.engine.model
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = env.engine.qpos[0].numpy(), env.engine.qvel[0].numpy()
    mujoco.mj_forward(model, data)
    for row, tip in zip(obs, TIPS, strict=True):
        body = model.body(tip).id
        velocity = np.zeros(6)  # angular, linear
        mujoco.mj_objectVelocity(model, data, mujoco.mjtObj.mjOBJ_XBODY, body, velocity, 0)
        w, x, y, z = data.xquat[body]
        expected = np.concatenate((data.xpos[body], (x, y, z, w), velocity[3:], velocity[:3]))
        np.testing.assert_allclose(row, expected.clip(-5, 5), atol=1e-4)


def test_fingertip_wrenches_are_the_sensors_times_ten() -> None:
    env = make(2)
    for _ in range(10):
        step = env.step(torch.full((2, 20), 0.4))
    assert not step.terminated.any()
    sensors = env.engine.sensordata.float()
    for place, tip in enumerate(TIPS):
        force, torque = (env.engine.model.sensor(f"{tip}_{kind}").adr[0] for kind in ("force", "torque"))
        read = torch.cat((sensors[:, force : force + 3], sensors[:, torque : torque + 3]), dim=1)
        shown = env.observe()["policy"][:, 161 + 6 * place : 167 + 6 * place]
        torch.testing.assert_close(shown, (10 * read).clamp(-5, 5))
    assert step.obs["policy"][:, 161:191].any()


def test_no_wrench_torque_or_action_is_observed_before_the_first_action() -> None:
    obs = make(3).observe()["policy"]
    assert not obs[:, 161:].any()
    torch.testing.assert_close(obs[:, 48:72], torch.zeros(3, 24), atol=1e-5, rtol=0)


def test_actions_move_the_twenty_servos() -> None:
    env = make(1)
    assert env.action_dim == 20
    names = [env.engine.model.actuator(i).name for i in range(20)]
    assert [name[-4:] for name in names] == [
        *("WRJ1", "WRJ0", "FFJ3", "FFJ2", "FFJ1", "MFJ3", "MFJ2", "MFJ1", "RFJ3", "RFJ2"),
        *("RFJ1", "LFJ4", "LFJ3", "LFJ2", "LFJ1", "THJ4", "THJ3", "THJ2", "THJ1", "THJ0"),
    ]
    env.step(torch.ones(1, 20))
    torch.testing.assert_close(env.engine.ctrl[0].float(), LIMITS[DRIVEN, 1])


def test_reward_by_hand() -> None:
    env = make(3)
    position = GOAL + torch.tensor([[0.0, 0.0, 0.05], [0.0, 0.0, 0.0], [0.0, -0.25, 0.0]])
    put(env, position, torch.stack([turn((0.6, 0.0, 0.8), angle) for angle in (0.4, 0.09, 2.0)]))
    aim(env, UPRIGHT)
    expected = torch.tensor([-0.5 + 1 / 0.5 - 0.004, 1 / 0.19 - 0.004 + 250, -2.5 + 1 / 2.1 - 0.004])
    torch.testing.assert_close(env.reward(torch.ones(3, 20)), expected, rtol=1e-4, atol=1e-4)
    assert env.failed().tolist() == [False, False, True]


def test_goal_reached_dropped_and_truncated() -> None:
    env = make(4)
    put(env, ABOVE + torch.tensor([[0.0] * 3, [0.0] * 3, [0.0] * 3, [0.3, 0.0, 0.0]]), UPRIGHT)
    aim(env, torch.stack([turn((0.0, 1.0, 0.0), angle) for angle in (0.05, 0.7, 0.05, 0.7)]))
    env.clock[:] = torch.tensor([5, 5, 598, 598])
    goal = env.kept["goal"].clone()
    step = env.step(torch.zeros(4, 20))
    assert step.terminated.tolist() == [False, False, False, True]
    assert step.truncated.tolist() == [False, False, True, False]
    assert step.log["episode/successes"].tolist() == [1.0, 0.0, 1.0, 0.0]
    assert env.clock.tolist() == [6, 6, 0, 0]
    assert (env.kept["goal"] != goal).any(dim=1).tolist() == [True, False, True, True]
    assert (step.reward > 200).tolist() == [True, False, True, False]


def test_starts() -> None:
    env = make(400)
    joints = env.engine.qpos[:, env.joints[0]].float()
    offset = env.engine.qpos[:, env.cube[0]][:, :3].float() - torch.tensor([0.0, -0.39, 0.6])
    assert (offset.abs().amax(dim=0) <= 0.01 + 1e-6).all()
    assert (joints >= 0.2 * LIMITS[:, 0] - 1e-6).all()
    assert (joints <= 0.2 * LIMITS[:, 1] + 1e-6).all()
    assert (joints.amax(dim=0) - joints.amin(dim=0) > 0.18 * (LIMITS[:, 1] - LIMITS[:, 0])).all()
    assert not env.engine.qvel.any()
