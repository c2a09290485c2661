"""The cuboids to be handled: ordered triples of edge lengths, generated as in the reference's files.

Each environment keeps one object: its size, mass and inertia are per-simulation values of one model.
"""

from collections.abc import Sequence
from itertools import product

import mujoco
import numpy as np
import torch
from torch import Tensor

from echelon.sim.contract import Engine
from echelon.tasks import rotations

EDGE = 0.05
"""Edge of the cube of scale 1, in metres."""
DENSITY = 400.0
"""kg/m³: 0.05 kg for the cube of scale 1."""
SPIN_DAMPING = 0.5
"""Damping of an object's rotation, in 1/s."""
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
