"""What is drawn beside the arms' poses: start poses of the object, its goals, and the forces that push it."""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from echelon.tasks.allegro_kuka.objects import EDGE
from echelon.tasks.mujoco_task import Rng

TABLE_TOP, CLEARANCE = 0.53, 0.002
"""Height of the table, and least height of an object's lowest corner above it at a start, in metres."""
DECAY_PER_SECOND = 0.99 ** (1.0 / 0.08)
LEAST_CHANCE, MOST_CHANCE = 0.001, 0.1
"""Bounds of the probability of a new force per control step, drawn log-uniformly once per episode."""


class Volume(NamedTuple):
    """A region to draw positions from: uniform between `low` and `high`, then moved by ±`side` along x, in metres."""

    low: tuple[float, float, float]
    high: tuple[float, float, float]
    side: float = 0.0


class Draws:
    """Draws poses for all environments. `scales [N, 3]` are those of the objects."""

    def __init__(self, starts: Volume, goals: Volume, scales: Tensor, turned_goals: bool, rng: Rng) -> None:
        self.scales, self.turned_goals, self.rng = scales, turned_goals, rng
        self._starts, self._goals = (
            (torch.tensor((volume.low, volume.high), device=scales.device), volume.side) for volume in (starts, goals)
        )
        self._upright = torch.tensor([1.0, 0.0, 0.0, 0.0], device=scales.device)

    def starts(self) -> Tensor:
        """`[N, 7]`: object poses with random orientations, high enough to clear the table."""
        position, orientation = self._positions(*self._starts), self._orientations()
        w, x, y, z = orientation.unbind(1)
        upwards = torch.stack((2.0 * (x * z - w * y), 2.0 * (y * z + w * x), 1.0 - 2.0 * (x * x + y * y)), dim=1)
        extent = 0.5 * EDGE * (upwards.abs() * self.scales).sum(dim=1)
        position[:, 2] = torch.maximum(position[:, 2], TABLE_TOP + CLEARANCE + extent)
        return torch.cat((position, orientation), dim=1)

    def goals(self) -> tuple[Tensor, Tensor]:
        """Positions `[N, 3]` and orientations `[N, 4]`; upright if a goal is only a point."""
        place = self._positions(*self._goals)
        return place, self._orientations() if self.turned_goals else self._upright.expand(len(place), 4)

    def _orientations(self) -> Tensor:
        """`[N, 4]`: random orientations, uniform over all rotations."""
        return normalize(self.rng.normal(4), dim=1)

    def _positions(self, bounds: Tensor, side: float) -> Tensor:
        """`[N, 3]`: random positions between `bounds [2, 3]`, on either side."""
        (low, high), shares = bounds, self.rng.uniform(0.0, 1.0, 4)
        place = low + (high - low) * shares[:, :3]
        place[:, 0] += side * torch.where(shares[:, 3] < 0.5, -1.0, 1.0)
        return place


class Pushes:
    """A force on each object in newtons, in the object's frame, so that the policy learns firm grasps.

    It decays slowly until a new one is drawn from a normal distribution with deviation `scale`.
    """

    def __init__(self, num_envs: int, scale: float, step: float, rng: Rng) -> None:
        self.scale, self.decay, self._rng = scale, DECAY_PER_SECOND**step, rng
        self.force = torch.zeros(num_envs, 3, device=rng.device)
        self.chance = torch.zeros(num_envs, device=rng.device)

    def begin(self, mask: Tensor) -> None:
        """Remove the force and draw a new probability in the environments of `mask [N]`."""
        drawn = self._rng.uniform(math.log(LEAST_CHANCE), math.log(MOST_CHANCE)).exp()
        self.chance.copy_(torch.where(mask, drawn, self.chance))
        self.force.masked_fill_(mask[:, None], 0.0)

    def advance(self) -> None:
        """Update the forces for the next control step."""
        fresh, lot = self.scale * self._rng.normal(3), self._rng.uniform(0.0, 1.0)
        self.force.mul_(self.decay)
        self.force.copy_(torch.where((lot < self.chance)[:, None], fresh, self.force))
