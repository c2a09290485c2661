"""Rotations as unit quaternions `[..., 4]`, in MuJoCo's order w x y z, Hamilton product."""

import torch
from torch import Tensor


def multiply(left: Tensor, right: Tensor) -> Tensor:
    """`left ⊗ right`: first the rotation `right`, then `left`."""
    lw, lx, ly, lz = left.unbind(-1)
    rw, rx, ry, rz = right.unbind(-1)
    return torch.stack(
        (
            lw * rw - lx * rx - ly * ry - lz * rz,
            lw * rx + lx * rw + ly * rz - lz * ry,
            lw * ry - lx * rz + ly * rw + lz * rx,
            lw * rz + lx * ry - ly * rx + lz * rw,
        ),
        dim=-1,
    )


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
