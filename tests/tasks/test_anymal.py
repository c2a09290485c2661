"""Anymal: observations by index, rewards, commands, falls and starts of states put there by hand."""

import math

import torch
from tasks.states import begun, check_spread, put
from torch import Tensor

from echelon.tasks.anymal import Anymal, AnymalConfig

CLOSE = {"atol": 1e-6, "rtol": 1e-5}
FORE, HIND = (0.4, -0.8), (-0.4, 0.8)
STANCE = torch.tensor((0.03, *FORE, 0.03, *HIND, -0.03, *FORE, -0.03, *HIND))
LEFT = (math.sqrt(0.5), 0.0, 0.0, math.sqrt(0.5))  # yaw of 90°
NOSE_DOWN = (math.cos(0.1), 0.0, math.sin(0.1), 0.0)  # pitch of 0.2 rad
ON_ITS_BACK = (0.0, 1.0, 0.0, 0.0)


def standing(count: int) -> tuple[Tensor, Tensor]:
    """`qpos [N, 19]` and `qvel [N, 18]` of the default pose."""
    qpos = torch.zeros(count, 19, dtype=torch.float64)
    qpos[:, 2], qpos[:, 3], qpos[:, 7:] = 0.62, 1.0, STANCE
    return qpos, torch.zeros(count, 18, dtype=torch.float64)


def in_state(qpos: Tensor, qvel: Tensor, config: AnymalConfig | None = None) -> Anymal:
    env = put(begun(Anymal, config or AnymalConfig(), len(qpos)), qpos, qvel)
    env.kept["command"].zero_()
    return env


def test_observation_by_index() -> None:
    qpos, qvel = standing(2)
    qpos[1, 3:7] = torch.tensor(LEFT)
    qpos[1, 7:] += torch.linspace(-0.5, 0.6, 12)
    qvel[:, :6] = torch.tensor((0.5, -1.0, 0.25, 1.0, 2.0, -4.0))
    qvel[1, 6:] = torch.linspace(-20.0, 24.0, 12)
    env = in_state(qpos, qvel)
    env.kept["command"].copy_(torch.tensor((1.5, -0.5, 0.8)).expand(2, 3))
    env.control(torch.linspace(-1.0, 1.0, 12).expand(2, 12))
    obs = env.observe()["policy"]
    assert obs.shape == (2, 48)
    torch.testing.assert_close(obs[0, 0:3], torch.tensor((1.0, -2.0, 0.5)), **CLOSE)
    torch.testing.assert_close(obs[1, 0:3], torch.tensor((-2.0, -1.0, 0.5)), **CLOSE)  # it looks along +y
    torch.testing.assert_close(obs[:, 3:6], torch.tensor((0.25, 0.5, -1.0)).expand(2, 3))  # MuJoCo's is the body's
    torch.testing.assert_close(obs[:, 6:9], torch.tensor((0.0, 0.0, -1.0)).expand(2, 3), **CLOSE)
    torch.testing.assert_close(obs[:, 9:12], torch.tensor((3.0, -1.0, 0.2)).expand(2, 3))
    torch.testing.assert_close(obs[0, 12:24], torch.zeros(12), **CLOSE)
    torch.testing.assert_close(obs[1, 12:24], torch.linspace(-0.5, 0.6, 12), **CLOSE)
    torch.testing.assert_close(obs[1, 24:36], torch.linspace(-1.0, 1.2, 12), **CLOSE)
    torch.testing.assert_close(obs[:, 36:48], torch.linspace(-1.0, 1.0, 12).expand(2, 12))


def test_observation_is_clipped() -> None:
    qpos, qvel = standing(1)
    qvel[0, 0], qvel[0, 6] = 4.0, -200.0
    obs = in_state(qpos, qvel).observe()["policy"]
    assert (obs[0, 0], obs[0, 24]) == (5.0, -5.0)


def test_gravity_is_seen_from_the_base_unless_asked_for_the_papers() -> None:
    qpos, qvel = standing(2)
    qpos[:, 3:7] = torch.tensor(NOSE_DOWN)
    # Nose down, gravity pulls forward in the base frame; the base's z-axis has tipped forward in the world.
    forward, down = math.sin(0.2), -math.cos(0.2)
    right = in_state(qpos, qvel).observe()["policy"][:, 6:9]
    torch.testing.assert_close(right, torch.tensor((forward, 0.0, down)).expand(2, 3), **CLOSE)
    papers = in_state(qpos, qvel, AnymalConfig(world_frame_gravity=True)).observe()["policy"][:, 6:9]
    torch.testing.assert_close(papers, torch.tensor((-forward, 0.0, down)).expand(2, 3), **CLOSE)


def test_reward_by_hand() -> None:
    qpos, qvel = standing(5)
    qpos[3, 3:7] = torch.tensor(LEFT)
    qvel[:, 0], qvel[:, 5] = 1.0, 0.5
    env = in_state(qpos, qvel)
    env.kept["command"].copy_(
        torch.tensor([(1.0, 0.0, 0.5), (0.5, 0.3, 0.5), (1.0, 0.0, -0.5), (0.0, -1.0, 0.5), (-2.0, 1.0, -1.0)])
    )
    env.engine.sensordata.zero_()
    expected = [
        0.03,
        0.02 * math.exp(-(0.25 + 0.09) / 0.25) + 0.01,
        0.02 + 0.01 * math.exp(-1.0 / 0.25),
        0.03,  # looking along +y, moving along +x is moving to the right
        0.02 * math.exp(-10.0 / 0.25) + 0.01 * math.exp(-2.25 / 0.25),
    ]
    torch.testing.assert_close(env.reward(torch.zeros(5, 12)), torch.tensor(expected), **CLOSE)
    error = torch.tensor((0.0, math.sqrt(0.34), 0.0, 0.0, math.sqrt(10.0)))
    torch.testing.assert_close(env.log()["tracking_error"], error, **CLOSE)


def test_torque_costs_but_the_reward_is_never_negative() -> None:
    qpos, qvel = standing(2)
    env = in_state(qpos, qvel)
    env.engine.sensordata.zero_()
    env.engine.sensordata[0, 5:] = 10.0  # 12 · 100 · 5e-7 = 0.0006
    env.engine.sensordata[1, 5:] = 80.0  # 12 · 6400 · 5e-7 = 0.0384, more than there is
    torch.testing.assert_close(env.reward(torch.zeros(2, 12)), torch.tensor((0.0294, 0.0)), **CLOSE)
    torch.testing.assert_close(env.log()["reward/torque"], torch.tensor((-0.0006, -0.0384)), **CLOSE)


def test_the_torques_are_those_of_the_servos() -> None:
    env = in_state(*standing(1))
    action = torch.linspace(-1.0, 1.0, 12)[None]
    step = env.step(action)
    torque = env.engine.read("actuator_force").float()
    torch.testing.assert_close(step.log["reward/torque"], -5e-7 * torque.square().sum(dim=1))
    # One substep: 85 N·m/rad times half a radian at full action.
    env = in_state(*standing(1))
    env.engine.ctrl.copy_(env.control(action))
    env.engine.step(1)
    torch.testing.assert_close(env.engine.sensordata[0, 5:].float(), 85 * 0.5 * action[0], atol=0.01, rtol=0)


def test_commands_last_an_episode() -> None:
    env = begun(Anymal, AnymalConfig(), 4)
    first = env.kept["command"].clone()
    env.clock[:] = torch.tensor((0, 2498, 2499, 0))
    step = env.step(torch.full((4, 12), 0.1))
    assert step.truncated.tolist() == [False, False, True, False]
    assert not step.terminated.any()
    same = (env.kept["command"] == first).all(dim=1)
    assert same.tolist() == [True, True, False, True]
    scale = torch.tensor((2.0, 2.0, 0.25))
    torch.testing.assert_close(step.final_obs["policy"][:, 9:12], scale * first)
    torch.testing.assert_close(step.obs["policy"][:, 9:12], scale * env.kept["command"])
    # The observation of a new episode has no action before it.
    assert (step.final_obs["policy"][:, 36:] == 0.1).all()
    assert (step.obs["policy"][:, 36:] == 0.1).all(dim=1).tolist() == [True, True, False, True]
    assert (step.obs["policy"][2, 36:] == 0).all()


def test_falls_on_base_and_thighs_but_not_on_feet_and_shanks() -> None:
    qpos, qvel = standing(4)
    qpos[:, 2] = torch.tensor((0.54, 0.263, 0.334, 0.35))
    qpos[1, 3:7] = torch.tensor(ON_ITS_BACK)
    qpos[2, 7:] = torch.tensor((0.0, 0.0, 1.57) * 4)  # on its knees, shanks level
    qpos[3, 7:] = torch.tensor((0.0, 1.4, -2.9, 0.0, -1.4, 2.9) * 2)  # crouching, in the air
    env = in_state(qpos, qvel)
    env.clock[:] = 2499
    step = env.step(torch.zeros(4, 12))
    assert step.terminated.tolist() == [False, True, True, False]
    assert step.truncated.tolist() == [True, False, False, True]
    assert step.log["episode/fell"].tolist() == [0.0, 1.0, 1.0, 0.0]
    assert (step.reward >= 0).all()


def test_a_touch_of_one_newton_is_allowed() -> None:
    env = in_state(*standing(4))
    env.engine.sensordata.zero_()
    env.engine.sensordata[0, :5] = 1.0
    env.engine.sensordata[1, 0] = 1.01
    env.engine.sensordata[2, 4] = 1.01
    env.engine.sensordata[3, 5:] = 80.0
    assert env.failed().tolist() == [False, True, True, False]


def test_episode_figure_is_the_mean_error() -> None:
    env = begun(Anymal, AnymalConfig(episode_length=10), 3)
    errors = []
    for _ in range(10):
        step = env.step(torch.zeros(3, 12))
        errors.append(step.log["tracking_error"])
    assert step.truncated.all()
    torch.testing.assert_close(step.log["episode/tracking_error"], torch.stack(errors).mean(dim=0))
    assert not any(total.any() for total in env.totals.values())


def test_starts_and_commands() -> None:
    env = begun(Anymal, AnymalConfig(), 2000)
    qpos, qvel = env.engine.qpos, env.engine.qvel
    assert (qpos[:, :7] == torch.tensor((0, 0, 0.62, 1, 0, 0, 0)).float().double()).all()
    assert (qvel[:, :6] == 0).all()
    check_spread(qpos[:, 7:] / STANCE.double(), 0.5, 1.5)
    check_spread(qvel[:, 6:], -0.1, 0.1)
    assert not env.failed().any()
    command, limits = env.kept["command"], torch.tensor((2.0, 1.0, 1.0))
    check_spread(command, -limits, limits)
    # Uniform: mean 0 and standard deviation limit / √3, within five standard errors of 2000 draws.
    assert (command.mean(dim=0).abs() < 5 * limits / math.sqrt(3 * 2000)).all()
    torch.testing.assert_close(command.std(dim=0), limits / math.sqrt(3), atol=0.05, rtol=0)
