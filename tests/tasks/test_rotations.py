"""Rotations against MuJoCo's own, against matrices written out, and angles against the order they are defined by."""

import math

import mujoco
import numpy as np
import torch
from torch import Tensor

from echelon.tasks import rotations

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
    np.testing.assert_allclose(matrix(rotations.multiply(a, b)), matrix(a) @ matrix(b), atol=1e-6)
    # A quarter about x, then one about z: (½, ½, ½, ½).
    half = rotations.multiply(about(Z, math.pi / 2), about(X, math.pi / 2))
    torch.testing.assert_close(half, torch.tensor([0.5, 0.5, 0.5, 0.5]))
    torch.testing.assert_close(rotations.multiply(a, rotations.conjugate(a)), torch.tensor([1.0, 0.0, 0.0, 0.0]))


def test_angle_of_both_signs_and_past_rounding() -> None:
    turns = torch.stack((about(X, 0.3), -about(X, 0.3), about(Y, -2.5), about(Z, 1.9 * math.pi)))
    torch.testing.assert_close(rotations.angle(turns), torch.tensor([0.3, 0.3, 2.5, 0.1 * math.pi]))
    assert rotations.angle(torch.tensor([0.0, 1.0001, 0.0, 0.0])).item() == torch.tensor(math.pi).item()


def test_about_x_then_y_is_the_product_of_both() -> None:
    angles = torch.tensor([[0.4, -1.1], [3.0, 2.0]])
    for drawn, (x, y) in zip(rotations.about_x_then_y(*angles.unbind(1)), angles.tolist(), strict=True):
        np.testing.assert_allclose(matrix(drawn), matrix(about(X, x)) @ matrix(about(Y, y)), atol=1e-6)
    assert rotations.xyzw(torch.tensor([[1.0, 2.0, 3.0, 4.0]])).tolist() == [[2.0, 3.0, 4.0, 1.0]]


def random_quats(count: int) -> torch.Tensor:
    quats = torch.randn(count, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return quats / quats.norm(dim=1, keepdim=True)


def test_turns_as_mujoco_does() -> None:
    quats = random_quats(50)
    vectors = torch.randn(50, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    expected = np.zeros((50, 3))
    for row, quat, vector in zip(expected, quats.numpy(), vectors.numpy(), strict=True):
        mujoco.mju_rotVecQuat(row, vector, quat)
    world = rotations.to_world(quats, vectors)
    torch.testing.assert_close(world, torch.from_numpy(expected))
    torch.testing.assert_close(rotations.to_base(quats, world), vectors)
    torch.testing.assert_close((world[:, None] @ rotations.matrix(quats))[:, 0], vectors)


def test_yaw_and_roll_of_yaw_pitch_roll() -> None:
    angles = np.random.default_rng(0).uniform((-3.1, -1.5, -3.1), (3.1, 1.5, 3.1), (50, 3))
    quats = np.zeros((50, 4))
    for quat, (yaw, pitch, roll) in zip(quats, angles, strict=True):
        mujoco.mju_euler2Quat(quat, np.array((yaw, pitch, roll)), "zyx")
    torch.testing.assert_close(rotations.yaw(torch.from_numpy(quats)), torch.from_numpy(angles[:, 0].copy()))
    torch.testing.assert_close(rotations.roll(torch.from_numpy(quats)), torch.from_numpy(angles[:, 2].copy()))


def test_wrapped() -> None:
    angles = torch.tensor((0.0, 3.0, 4.0, -4.0, 2 * math.pi, -math.pi))
    expected = torch.tensor((0.0, 3.0, 4.0 - 2 * math.pi, 2 * math.pi - 4.0, 0.0, -math.pi))
    torch.testing.assert_close(rotations.wrapped(angles), expected, atol=1e-6, rtol=0)
