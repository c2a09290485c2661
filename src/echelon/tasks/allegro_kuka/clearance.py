"""Whether an object would be put into a hand, so that it can be put elsewhere."""

from itertools import product

import mujoco
import numpy as np
import torch
from torch import Tensor

from echelon.sim.contract import Engine
from echelon.tasks import rotations
from echelon.tasks.allegro_kuka.objects import EDGE

BALL = 0.02
"""Radius of the balls that a palm is filled with, in metres; they overlap."""


class Hands:
    """The shapes of the hands that touch, as balls: three in a capsule, a grid in a box."""

    def __init__(self, engine: Engine) -> None:
        model, geoms, offsets, radii = engine.model, [], [], []
        for geom in np.flatnonzero((model.geom_contype & 1) & (model.geom_bodyid > 0)):
            size = model.geom_size[geom]
            if model.geom_type[geom] == mujoco.mjtGeom.mjGEOM_BOX:
                grid = product(*(np.linspace(BALL - half, half - BALL, 3) for half in size))
                found, radius = [*grid], BALL
            else:
                found, radius = [(0.0, 0.0, share * size[1]) for share in (-1.0, 0.0, 1.0)], size[0]
            geoms += [int(geom)] * len(found)
            offsets += found
            radii += [radius] * len(found)
        self._geoms = torch.tensor(geoms, device=engine.device)
        self._offsets = torch.tensor(np.array(offsets), dtype=torch.float32, device=engine.device)
        self._radii = torch.tensor(np.array(radii), dtype=torch.float32, device=engine.device)
        self._position, self._frame = engine.read("geom_xpos"), engine.read("geom_xmat")

    def balls(self, rows: Tensor | slice = slice(None)) -> Tensor:
        """`[N, P, 3]`: their centres in the world, in these environments."""
        position = self._position[rows][:, self._geoms].float()
        frame = self._frame[rows][:, self._geoms].float().reshape(*position.shape, 3)
        # No batched product: of millions of 3 x 3 matrices it takes longer than a step of physics.
        return position + (frame * self._offsets[:, None]).sum(dim=3)

    def meet(self, balls: Tensor, pose: Tensor, scales: Tensor) -> Tensor:
        """`[N]` bool: cuboids at `pose [N, 7]` with `scales [N, 3]` that some of `balls [N, P, 3]` reach into."""
        return (gaps(balls, pose, scales) < self._radii).any(dim=1)


def gaps(points: Tensor, pose: Tensor, scales: Tensor) -> Tensor:
    """`[N, P]`: distances of `points [N, P, 3]` from the cuboids, in metres; 0 inside."""
    away, axes = points - pose[:, None, :3], rotations.matrix(pose[:, 3:]).unbind(2)
    beyond = [
        ((away * axis[:, None]).sum(dim=2).abs() - 0.5 * EDGE * half[:, None]).clamp(min=0.0)
        for axis, half in zip(axes, scales.unbind(1), strict=True)
    ]
    return torch.stack(beyond).square().sum(dim=0).sqrt()
