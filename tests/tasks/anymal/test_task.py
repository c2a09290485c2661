"""Anymal: torques, commands, falls and starts."""

import math

import torch
from tasks.states import begun, check_spread, put
from torch import Tensor

from echelon.tasks.anymal.task import Anymal, AnymalConfig

FORE, HIND = (0.4, -0.8), (-0.4, 0.8)
STANCE = torch.tensor((0.03, *FORE, 0.03, *HIND, -0.03, *FORE, -0.03, *HIND))


def standing(count: int) -> tuple[Tensor, Tensor]:
    """`qpos [N, 19]` and `qvel [N, 18]` of the default pose."""
    qpos = torch.zeros(count, 19, dtype=torch.float64)
    qpos[:, 2], qpos[:, 3], qpos[:, 7:] = 0.62, 1.0, STANCE
    return qpos, torch.zeros(count, 18, dtype=torch.float64)


def in_state(qpos: Tensor, qvel: Tensor, config: AnymalConfig | None = None) -> Anymal:
    env = put(begun(Anymal, config or AnymalConfig(), len(qpos)), qpos, qvel)
    env.kept["command"].zero_()
    return env


def test_the_torques_are_those_of_the_servos() -> None:
    """One substep: 85 N·m/rad times half a radian at full action."""
    env, action = in_state(*standing(1)), torch.linspace(-1.0, 1.0, 12)[None]
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
