"""States of the AllegroKuka tasks put there by hand."""

import torch
from torch import Tensor

from echelon.tasks.allegro_kuka.task import AllegroKuka

FAMILY = tuple(f"AllegroKuka{name}" for name in ("Regrasping", "Reorientation", "Throw", "TwoArmsReorientation"))
REGRASPING, REORIENTATION, THROW, TWO_ARMS = FAMILY
DEFAULT = (-1.571, 1.571, 0.0, 1.376, 0.0, 1.485, 2.358)
"""Angles of the arm, in radians."""


def idle(env: AllegroKuka) -> Tensor:
    """An action: the arm stays, the fingers go to the middle of their ranges."""
    return torch.zeros(env.num_envs, env.action_dim)
