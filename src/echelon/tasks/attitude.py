"""Vectors between the world and a floating base. Quaternions `[N, 4]` are MuJoCo's, w x y z, from base to world."""

import torch
from torch import Tensor


def to_world(quat: Tensor, vector: Tensor) -> Tensor:
    """A vector `[N, 3]` of the base frame, in the world frame: R v."""
    return _turn(quat[:, :1], quat[:, 1:], vector)


def to_base(quat: Tensor, vector: Tensor) -> Tensor:
    """A vector `[N, 3]` of the world frame, in the base frame: Rᵀ v."""
    return _turn(-quat[:, :1], quat[:, 1:], vector)


def _turn(w: Tensor, axis: Tensor, vector: Tensor) -> Tensor:
    """v + 2w (u × v) + 2 u × (u × v)."""
    once = 2.0 * torch.linalg.cross(axis, vector)
    return vector + w * once + torch.linalg.cross(axis, once)


def matrix(quat: Tensor) -> Tensor:
    """`[N, 3, 3]`: R, so that rows `[N, P, 3]` of the world frame times it are in the base frame."""
    w, x, y, z = quat.unbind(1)
    rows = (
        *(w * w + x * x - y * y - z * z, 2.0 * (x * y - w * z), 2.0 * (x * z + w * y)),
        *(2.0 * (x * y + w * z), w * w - x * x + y * y - z * z, 2.0 * (y * z - w * x)),
        *(2.0 * (x * z - w * y), 2.0 * (y * z + w * x), w * w - x * x - y * y + z * z),
    )
    return torch.stack(rows, dim=1).unflatten(1, (3, 3))


def roll(quat: Tensor) -> Tensor:
    """`[N]`: rotation about x in the order yaw, pitch, roll, in (-π, π]."""
    w, x, y, z = quat.unbind(1)
    return torch.atan2(2.0 * (w * x + y * z), w * w - x * x - y * y + z * z)


def yaw(quat: Tensor) -> Tensor:
    """`[N]`: rotation about z in the order yaw, pitch, roll, in (-π, π]."""
    w, x, y, z = quat.unbind(1)
    return torch.atan2(2.0 * (w * z + x * y), w * w + x * x - y * y - z * z)


def wrapped(angle: Tensor) -> Tensor:
    """An angle in [-π, π)."""
    return torch.remainder(angle + torch.pi, 2.0 * torch.pi) - torch.pi
