"""Anymal: torques, commands, falls and starts. Rewards and observations are compared in `originals`."""

import math

import torch
from tasks.states import begun, check_spread, put

FORE, HIND = (0.4, -0.8), (-0.4, 0.8)
STANCE = torch.tensor((0.03, *FORE, 0.03, *HIND, -0.03, *FORE, -0.03, *HIND))


def test_torques_are_those_of_the_servos_a_touch_is_allowed_and_commands_last_an_episode() -> None:
    """One substep: 85 N·m/rad times half a radian at full action."""
    env = begun("Anymal", 4)
    put(env, torch.cat((torch.tensor((0.0, 0.0, 0.62, 1.0, 0.0, 0.0, 0.0)), STANCE)).double().repeat(4, 1))
    action = torch.linspace(-1.0, 1.0, 12).repeat(4, 1)
    env.engine.ctrl.copy_(env.control(action))
    env.engine.step(1)
    torch.testing.assert_close(env.engine.sensordata[:, 5:].float(), 85 * 0.5 * action, atol=0.01, rtol=0)
    sensors = env.engine.sensordata.zero_()
    sensors[0, :5], sensors[1, 0], sensors[2, 4], sensors[3, 5:] = 1.0, 1.01, 1.01, 80.0
    assert env.failed().tolist() == [False, True, True, False]
    env = begun("Anymal", 4)
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
    torch.testing.assert_close(step.obs["policy"][:, 36:], 0.1 * same.float()[:, None].expand(4, 12))


def test_starts_commands_and_the_figure_of_an_episode() -> None:
    """The figure is the mean error of all steps."""
    env = begun("Anymal", 3, episode_length=10)
    steps = [env.step(torch.zeros(3, 12)) for _ in range(10)]
    assert steps[-1].truncated.all()
    errors = torch.stack([step.log["tracking_error"] for step in steps])
    torch.testing.assert_close(steps[-1].log["episode/tracking_error"], errors.mean(dim=0))
    assert not any(total.any() for total in env.totals.values())
    env = begun("Anymal", 2000)
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
