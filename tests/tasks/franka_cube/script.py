"""Hand-written policies for the Franka tasks, through their actions alone: proof that the cubes can be moved."""

from typing import Any

import torch
from torch import Tensor

from echelon.envs.contract import Step
from echelon.tasks.rotations import multiply

DOWN = torch.tensor((0.0, 1.0, 0.0, 0.0))
"""The hand pointing down with its x along the world's, w x y z."""


class PickAndPlace:
    """Over the cube, down to it, shut, then carry it `above` its target [m], lower it, open, go up."""

    def __init__(self, env: Any, obs: Tensor, above: float, target: float) -> None:
        self.env, self.above, self.target = env, above, target
        self.phase = torch.zeros(env.num_envs, dtype=torch.int64)
        self.waited = torch.zeros(env.num_envs)
        turned = obs[:, [3, 0, 1, 2]]  # by less than 45° about z, so the fingers' faces meet the cube's
        self.hand = multiply(turned, DOWN.expand(env.num_envs, 4))

    def act(self, obs: Tensor) -> Tensor:
        cube, way, grip = obs[:, 4:7], obs[:, 7:10], obs[:, 10:13]
        lift, rest = torch.tensor((0.0, 0.0, self.above)), torch.tensor((0.0, 0.0, self.target))
        up = grip + torch.tensor((0.0, 0.0, 0.1))
        goals = (cube + torch.tensor((0.0, 0.0, 0.12)), cube, grip, grip + way + lift, grip + way + rest, grip, up)
        goal = torch.stack(goals)[self.phase, torch.arange(len(obs))]
        error = goal - grip
        self._proceed(error.norm(dim=1))
        shift = error / 0.1
        shift = shift / shift.abs().amax(dim=1, keepdim=True).clamp(min=1.0)
        shut = (self.phase >= 2) & (self.phase <= 4)
        return torch.cat((shift, self._turn(obs), torch.where(shut, -1.0, 1.0)[:, None]), dim=1)

    def _proceed(self, error: Tensor) -> None:
        """To the next phase, once this one's goal is reached or its time is up."""
        near = torch.tensor((0.02, 0.006, 0.0, 0.012, 0.003, 0.0, 0.0))[self.phase]
        long = torch.tensor((999.0, 999.0, 10.0, 999.0, 999.0, 10.0, 999.0))[self.phase]
        done = (error < near) | (self.waited >= long)
        self.phase = torch.where(done, self.phase + 1, self.phase)
        self.waited = torch.where(done, 0.0, self.waited + 1.0)

    def _turn(self, obs: Tensor) -> Tensor:
        """Action that turns the hand to its orientation: the rotation vector to it over 0.5 rad."""
        conjugate = obs[:, [16, 13, 14, 15]] * torch.tensor((1.0, -1.0, -1.0, -1.0))
        error = multiply(self.hand, conjugate)
        return (2.0 * error[:, 1:] * error[:, :1].sign() / 0.5).clamp(-1.0, 1.0)


def successes(env: Any, above: float, target: float) -> tuple[Tensor, list[Step]]:
    """`[N]` bool: first episodes that the script brings to success; and all steps."""
    obs = env.reset()["policy"]
    policy = PickAndPlace(env, obs, above, target)
    running, succeeded, steps = torch.ones(env.num_envs, dtype=torch.bool), torch.zeros(env.num_envs), []
    for _ in range(env.episode_length):
        step = env.step(policy.act(obs))
        ended = step.terminated | step.truncated
        succeeded += running * ended * step.log["episode/successes"]
        running &= ~ended
        obs = step.obs["policy"]
        steps.append(step)
    return succeeded > 0, steps
