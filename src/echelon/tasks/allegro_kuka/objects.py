"""The cuboids to be handled, where they start, their goals, and the forces that push them.

Their sizes are ordered triples of edge lengths, generated as in the reference's files. Each environment keeps one
object: its size, mass and inertia are per-simulation values of one model.
"""

import math
from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import mujoco
import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from echelon.sim.contract import Engine
from echelon.tasks import rotations
from echelon.tasks.mujoco_task import Rng

EDGE = 0.05
"""Edge of the cube of scale 1, in metres."""
DENSITY = 400.0
"""kg/m³: 0.05 kg for the cube of scale 1."""
SPIN_DAMPING = 0.5
"""Damping of an object's rotation, in 1/s."""
TABLE_TOP, CLEARANCE = 0.53, 0.002
"""Height of the table, and least height of an object's lowest corner above it at a start, in metres."""
DECAY_PER_SECOND = 0.99 ** (1.0 / 0.08)
LEAST_CHANCE, MOST_CHANCE = 0.001, 0.1
"""Bounds of the probability of a new force per control step, drawn log-uniformly once per episode."""
Scales = tuple[float, float, float]


def small() -> list[Scales]:
    """654 objects of 50 to 125 g."""
    return _triples((1.0, 0.5, 0.66, 0.75, 0.9, 1.1, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0), 1.0, 2.5)


def big() -> list[Scales]:
    """248 objects of 125 to 750 g, no thin plates."""
    return [scales for scales in _triples((1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 3.5), 2.5, 15.0) if not _is_plate(scales)]


def sticks() -> list[Scales]:
    """45 objects of 125 to 300 g, one side more than three times as long as either other."""
    found = _triples((1.0, 0.5, 0.75, 2.0, 3.0, 4.0, 5.0, 6.0), 2.5, 6.0)
    return [scales for scales in found if not _is_plate(scales) and max(scales) > 3.0 * sorted(scales)[1]]


def shuffled(*classes: Sequence[Scales]) -> list[Scales]:
    """The objects of some classes in the reference's order: sorted by file name, then shuffled once."""
    named = [
        (f"{i:03d}_cube_" + "_".join(str(round(100 * side)) for side in scales), scales)
        for objects in classes
        for i, scales in enumerate(objects)
    ]
    ordered = [scales for _, scales in sorted(named)]
    np.random.default_rng(42).shuffle(ordered)
    return ordered


def give(engine: Engine, objects: Sequence[Scales], each: int = 0) -> tuple[Tensor, Tensor]:
    """Give the body `object` of simulation i the size and mass of the i-th of `objects`, repeating the list as needed.

    A box that shows the goal gets the same size. After `each` simulations, if given, the list begins again. Returns
    scales `[N, 3]` and masses `[N]`.
    """
    model, table = engine.model, torch.tensor(objects, dtype=torch.float64)
    scales = table[torch.arange(engine.num_sims) % (each or engine.num_sims) % len(table)].to(engine.device)
    sides = EDGE * scales
    mass = DENSITY * sides.prod(dim=1)
    square = sides.square()
    inertia = mass[:, None] / 12.0 * (square.sum(dim=1, keepdim=True) - square)
    body, first = int(model.body("object").id), int(model.joint("object").dofadr[0])
    spin = torch.cat((torch.zeros_like(inertia), SPIN_DAMPING * inertia), dim=1)
    boxes = [i for i in range(model.ngeom) if model.geom(i).name in ("object", "goal")]
    boxes = [i for i in boxes if model.geom_type[i] == mujoco.mjtGeom.mjGEOM_BOX]
    for field, place, value in (
        ("body_mass", body, mass),
        ("body_inertia", body, inertia),
        ("dof_damping", slice(first, first + 6), spin),
        *(("geom_size", geom, 0.5 * sides) for geom in boxes),
    ):
        values = engine.expand(field)
        values[:, place] = value.to(values.dtype)
    engine.set_const()
    return scales.float(), mass.float()


def gaps(points: Tensor, pose: Tensor, scales: Tensor) -> Tensor:
    """`[N, P]`: distances of `points [N, P, 3]` from the cuboids at `pose [N, 7]`, in metres; 0 inside."""
    away, axes = points - pose[:, None, :3], rotations.matrix(pose[:, 3:]).unbind(2)
    beyond = [
        ((away * axis[:, None]).sum(dim=2).abs() - 0.5 * EDGE * half[:, None]).clamp(min=0.0)
        for axis, half in zip(axes, scales.unbind(1), strict=True)
    ]
    return torch.stack(beyond).square().sum(dim=0).sqrt()


def _triples(sides: Sequence[float], least: float, most: float) -> list[Scales]:
    """Ordered triples of scales with a volume within bounds."""
    return [(x, y, z) for x, y, z in product(sides, repeat=3) if least <= x * y * z <= most]


def _is_plate(scales: Scales) -> bool:
    """Whether the shortest side is at most a third of the next."""
    shortest, middle, _ = sorted(scales)
    return 3.0 * shortest <= middle


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
