"""Quaternions against rotation matrices written out."""

import math

import numpy as np
import torch
from torch import Tensor

from echelon.tasks import quaternions as quat

X, Y, Z = (torch.tensor(axis) for axis in ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)))


def about(axis: Tensor, angle: float) -> Tensor:
    return torch.cat((torch.tensor([math.cos(angle / 2)]), math.sin(angle / 2) * axis))


def matrix(q: Tensor) -> np.ndarray:
    w, x, y, z = q.double().tolist()
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def test_product_turns_by_the_right_factor_first() -> None:
    a, b = about(X, 0.7), about(Z, -1.3)
    np.testing.assert_allclose(matrix(quat.multiply(a, b)), matrix(a) @ matrix(b), atol=1e-6)
    # A quarter about x, then one about z: (½, ½, ½, ½).
    half = quat.multiply(about(Z, math.pi / 2), about(X, math.pi / 2))
    torch.testing.assert_close(half, torch.tensor([0.5, 0.5, 0.5, 0.5]))


def test_conjugate_undoes() -> None:
    a = quat.multiply(about(X, 0.7), about(Y, 2.0))
    torch.testing.assert_close(quat.multiply(a, quat.conjugate(a)), torch.tensor([1.0, 0.0, 0.0, 0.0]))


def test_angle_of_both_signs_and_past_rounding() -> None:
    turns = torch.stack((about(X, 0.3), -about(X, 0.3), about(Y, -2.5), about(Z, 1.9 * math.pi)))
    torch.testing.assert_close(quat.angle(turns), torch.tensor([0.3, 0.3, 2.5, 0.1 * math.pi]))
    assert quat.angle(torch.tensor([0.0, 1.0001, 0.0, 0.0])).item() == torch.tensor(math.pi).item()


def test_about_x_then_y_is_the_product_of_both() -> None:
    angles = torch.tensor([[0.4, -1.1], [3.0, 2.0]])
    for drawn, (x, y) in zip(quat.about_x_then_y(*angles.unbind(1)), angles.tolist(), strict=True):
        np.testing.assert_allclose(matrix(drawn), matrix(about(X, x)) @ matrix(about(Y, y)), atol=1e-6)


def test_order_of_observations() -> None:
    assert quat.xyzw(torch.tensor([[1.0, 2.0, 3.0, 4.0]])).tolist() == [[2.0, 3.0, 4.0, 1.0]]
