"""Rotations against MuJoCo's own, against matrices written out, and angles against the order they are defined by."""

import math

import mujoco
import numpy as np
import torch
from torch import Tensor

from echelon.tasks import rotations

X, Y, Z = torch.eye(3)


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


def test_products_turn_by_the_right_factor_first() -> None:
    a, b = about(X, 0.7), about(Z, -1.3)
    np.testing.assert_allclose(matrix(rotations.multiply(a, b)), matrix(a) @ matrix(b), atol=1e-6)
    # A quarter about x, then one about z: (½, ½, ½, ½).
    half = rotations.multiply(about(Z, math.pi / 2), about(X, math.pi / 2))
    torch.testing.assert_close(half, torch.tensor([0.5, 0.5, 0.5, 0.5]))
    torch.testing.assert_close(rotations.multiply(a, rotations.conjugate(a)), torch.tensor([1.0, 0.0, 0.0, 0.0]))
    for x, y in ((0.4, -1.1), (3.0, 2.0)):
        found = rotations.about_x_then_y(torch.tensor(x), torch.tensor(y))
        np.testing.assert_allclose(matrix(found), matrix(about(X, x)) @ matrix(about(Y, y)), atol=1e-6)
    assert rotations.xyzw(torch.tensor([[1.0, 2.0, 3.0, 4.0]])).tolist() == [[2.0, 3.0, 4.0, 1.0]]


def test_angles_of_both_signs_past_rounding_and_wrapped() -> None:
    turns = torch.stack((about(X, 0.3), -about(X, 0.3), about(Y, -2.5), about(Z, 1.9 * math.pi)))
    torch.testing.assert_close(rotations.angle(turns), torch.tensor([0.3, 0.3, 2.5, 0.1 * math.pi]))
    assert rotations.angle(torch.tensor([0.0, 1.0001, 0.0, 0.0])).item() == torch.tensor(math.pi).item()
    angles = torch.tensor((0.0, 3.0, 4.0, -4.0, 2 * math.pi, -math.pi))
    expected = torch.tensor((0.0, 3.0, 4.0 - 2 * math.pi, 2 * math.pi - 4.0, 0.0, -math.pi))
    torch.testing.assert_close(rotations.wrapped(angles), expected, atol=1e-6, rtol=0)


def test_turns_yaw_and_roll_as_mujoco_does() -> None:
    rng = np.random.default_rng(0)
    angles = rng.uniform((-3.1, -1.5, -3.1), (3.1, 1.5, 3.1), (50, 3))
    vectors = torch.from_numpy(rng.normal(size=(50, 3)))
    quats, expected = np.zeros((50, 4)), np.zeros((50, 3))
    for i in range(50):
        mujoco.mju_euler2Quat(quats[i], angles[i], "zyx")  # yaw, pitch, roll
        mujoco.mju_rotVecQuat(expected[i], vectors[i].numpy(), quats[i])
    turns = torch.from_numpy(quats)
    world = rotations.to_world(turns, vectors)
    torch.testing.assert_close(world, torch.from_numpy(expected))
    torch.testing.assert_close(rotations.to_base(turns, world), vectors)
    torch.testing.assert_close((world[:, None] @ rotations.matrix(turns))[:, 0], vectors)
    torch.testing.assert_close(rotations.yaw(turns), torch.from_numpy(angles[:, 0].copy()))
    torch.testing.assert_close(rotations.roll(turns), torch.from_numpy(angles[:, 2].copy()))
