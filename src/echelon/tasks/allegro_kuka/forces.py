"""Random forces on the object, so that the policy learns firm grasps."""

import math

import torch
from torch import Tensor

from echelon.tasks.rng import Rng

DECAY_PER_SECOND = 0.99 ** (1.0 / 0.08)
LEAST_CHANCE, MOST_CHANCE = 0.001, 0.1
"""Bounds of the probability of a new force per control step, drawn log-uniformly once per episode."""


class Pushes:
    """A force on each object `[N, 3]` in newtons, in the object's frame.

    It decays slowly until a new one is drawn from a normal distribution with deviation `scale`.
    """

    def __init__(self, num_envs: int, scale: float, step: float, rng: Rng) -> None:
        device = rng.device
        self.scale, self.decay, self._rng = scale, DECAY_PER_SECOND**step, rng
        self.force = torch.zeros(num_envs, 3, device=device)
        self.chance = torch.zeros(num_envs, device=device)

    def begin(self, mask: Tensor) -> None:
        """Remove the force and draw a new probability in the environments of `mask [N]`."""
        low, high = math.log(LEAST_CHANCE), math.log(MOST_CHANCE)
        drawn = self._rng.uniform(low, high).exp()
        self.chance.copy_(torch.where(mask, drawn, self.chance))
        self.force.masked_fill_(mask[:, None], 0.0)

    def advance(self) -> None:
        """Update the forces for the next control step."""
        fresh = self.scale * self._rng.normal(3)
        lot = self._rng.uniform(0.0, 1.0)
        self.force.mul_(self.decay)
        self.force.copy_(torch.where((lot < self.chance)[:, None], fresh, self.force))
