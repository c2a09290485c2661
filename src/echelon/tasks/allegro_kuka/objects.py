"""The cuboids to be handled: ordered triples of edge lengths, generated as in the reference's files.

Each environment keeps one object: its size, mass and inertia are per-simulation values of one model.
"""

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
import torch
from torch import Tensor

from echelon.sim.contract import Engine

EDGE = 0.05
"""Edge of the cube of scale 1, in metres."""
DENSITY = 400.0
"""kg/m³: 0.05 kg for the cube of scale 1."""
SPIN_DAMPING = 0.5
"""Damping of an object's rotation, in 1/s."""
Scales = tuple[float, float, float]

SMALL_SIDES = (1.0, 0.5, 0.66, 0.75, 0.9, 1.1, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0)
BIG_SIDES = (1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 3.5)
STICK_SIDES = (1.0, 0.5, 0.75, 2.0, 3.0, 4.0, 5.0, 6.0)


def small() -> list[Scales]:
    """654 objects of 50 to 125 g."""
    return list(_triples(SMALL_SIDES, 1.0, 2.5))


def big() -> list[Scales]:
    """248 objects of 125 to 750 g, no thin plates."""
    return [scales for scales in _triples(BIG_SIDES, 2.5, 15.0) if not _is_plate(*sorted(scales))]


def sticks() -> list[Scales]:
    """45 objects of 125 to 300 g, one side more than three times as long as either other."""
    found = [(scales, sorted(scales)) for scales in _triples(STICK_SIDES, 2.5, 6.0)]
    return [scales for scales, sides in found if not _is_plate(*sides) and sides[2] > 3.0 * sides[1]]


def shuffled(*classes: Sequence[Scales]) -> list[Scales]:
    """The objects of some classes in the reference's order: sorted by file name, then shuffled once."""
    named = [(_name(i, scales), scales) for objects in classes for i, scales in enumerate(objects)]
    ordered = [scales for _, scales in sorted(named)]
    np.random.default_rng(42).shuffle(ordered)
    return ordered


def give(engine: Engine, objects: Sequence[Scales], geoms: Sequence[str], each: int = 0) -> tuple[Tensor, Tensor]:
    """Give the body `object` of simulation i the size and mass of the i-th of `objects`, repeating the list as needed.

    `geoms` are resized. After `each` simulations, if given, the list begins again. Returns scales `[N, 3]` and masses
    `[N]`.
    """
    table = torch.tensor(objects, dtype=torch.float64)
    scales = table[torch.arange(engine.num_sims) % (each or engine.num_sims) % len(table)].to(engine.device)
    sides = EDGE * scales
    mass = DENSITY * sides.prod(dim=1)
    square = sides.square()
    inertia = mass[:, None] / 12.0 * (square.sum(dim=1, keepdim=True) - square)
    body = int(engine.model.body("object").id)
    for field, value in (("body_mass", mass), ("body_inertia", inertia)):
        values = engine.expand(field)
        values[:, body] = value.to(values.dtype)
    damping, first = engine.expand("dof_damping"), int(engine.model.joint("object").dofadr[0])
    damping[:, first : first + 3] = 0.0
    damping[:, first + 3 : first + 6] = (SPIN_DAMPING * inertia).to(damping.dtype)
    sizes = engine.expand("geom_size")
    for name in geoms:
        sizes[:, int(engine.model.geom(name).id)] = (0.5 * sides).to(sizes.dtype)
    engine.set_const()
    return scales.float(), mass.float()


def _triples(sides: Sequence[float], least: float, most: float) -> Iterator[Scales]:
    """Ordered triples of scales with a volume within bounds."""
    for x, y, z in product(sides, repeat=3):
        if least <= x * y * z <= most:
            yield x, y, z


def _is_plate(shortest: float, middle: float, _: float) -> bool:
    """Whether the shortest side is at most a third of the next."""
    return 3.0 * shortest <= middle


def _name(index: int, scales: Scales) -> str:
    """The reference's file name."""
    return f"{index:03d}_cube_" + "_".join(str(round(100 * side)) for side in scales)
