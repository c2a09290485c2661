"""Rotations as unit quaternions `[..., 4]` in MuJoCo's order w x y z, and vectors between the world and a base frame.

A quaternion `[N, 4]` of a base turns vectors of its frame into the world's.
"""

import torch
from torch import Tensor


def multiply(left: Tensor, right: Tensor) -> Tensor:
    """`left ⊗ right`: first the rotation `right`, then `left`."""
    lw, lx, ly, lz = left.unbind(-1)
    rw, rx, ry, rz = right.unbind(-1)
    w = lw * rw - lx * rx - ly * ry - lz * rz
    x = lw * rx + lx * rw + ly * rz - lz * ry
    y = lw * ry - lx * rz + ly * rw + lz * rx
    z = lw * rz + lx * ry - ly * rx + lz * rw
    return torch.stack((w, x, y, z), dim=-1)


def conjugate(quat: Tensor) -> Tensor:
    """The inverse rotation."""
    return torch.cat((quat[..., :1], -quat[..., 1:]), dim=-1)


def angle(quat: Tensor) -> Tensor:
    """`[...]`: how far `quat` turns, in [0, π], the same for q and -q."""
    return 2.0 * torch.asin(quat[..., 1:].norm(dim=-1).clamp(max=1.0))


def xyzw(quat: Tensor) -> Tensor:
    """The quaternion in the order x y z w, as in the tasks' observations."""
    return torch.cat((quat[..., 1:], quat[..., :1]), dim=-1)


def about_x_then_y(about_x: Tensor, about_y: Tensor) -> Tensor:
    """`Rx(about_x) · Ry(about_y)` for angles `[...]` in radians."""
    half_x, half_y = 0.5 * about_x, 0.5 * about_y
    cos_x, sin_x, cos_y, sin_y = half_x.cos(), half_x.sin(), half_y.cos(), half_y.sin()
    return torch.stack((cos_x * cos_y, sin_x * cos_y, cos_x * sin_y, sin_x * sin_y), dim=-1)


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
