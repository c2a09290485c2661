"""States of the AllegroKuka tasks put there by hand."""

import math
from typing import Any

import torch
from torch import Tensor

from echelon.tasks.allegro_kuka.task import AllegroKuka

FAMILY = tuple(f"AllegroKuka{name}" for name in ("Regrasping", "Reorientation", "Throw", "TwoArmsReorientation"))
REGRASPING, REORIENTATION, THROW, TWO_ARMS = FAMILY
UPRIGHT = (1.0, 0.0, 0.0, 0.0)
DEFAULT = (-1.571, 1.571, 0.0, 1.376, 0.0, 1.485, 2.358)
"""Angles of the arm, in radians."""


def turn(axis: tuple[float, float, float], angle: float) -> tuple[float, ...]:
    """The quaternion w x y z of a turn about an axis of length 1."""
    return (math.cos(angle / 2), *(math.sin(angle / 2) * part for part in axis))


def put(env: AllegroKuka, position: Tensor, orientation: Any = UPRIGHT) -> None:
    """The object at `position [N, 3]`, in the air if need be; the joints at rest where they were drawn."""
    qpos = env.engine.qpos.clone()
    qpos[:, :3], qpos[:, 3:7] = position.double(), torch.as_tensor(orientation, dtype=torch.float64)
    env.engine.set_state(torch.ones(len(qpos), dtype=torch.bool), qpos, torch.zeros_like(env.engine.qvel))


def idle(env: AllegroKuka) -> Tensor:
    """An action: the arm stays, the fingers go to the middle of their ranges."""
    return torch.zeros(env.num_envs, env.action_dim)
