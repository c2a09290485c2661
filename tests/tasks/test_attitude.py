"""Rotations of a floating base against MuJoCo's own, and angles against the order they are defined by."""

import math

import mujoco
import numpy as np
import torch

from echelon.tasks import attitude


def random_quats(count: int) -> torch.Tensor:
    quats = torch.randn(count, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return quats / quats.norm(dim=1, keepdim=True)


def test_turns_as_mujoco_does() -> None:
    quats = random_quats(50)
    vectors = torch.randn(50, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    expected = np.zeros((50, 3))
    for row, quat, vector in zip(expected, quats.numpy(), vectors.numpy(), strict=True):
        mujoco.mju_rotVecQuat(row, vector, quat)
    world = attitude.to_world(quats, vectors)
    torch.testing.assert_close(world, torch.from_numpy(expected))
    torch.testing.assert_close(attitude.to_base(quats, world), vectors)
    torch.testing.assert_close((world[:, None] @ attitude.matrix(quats))[:, 0], vectors)


def test_yaw_and_roll_of_yaw_pitch_roll() -> None:
    angles = np.random.default_rng(0).uniform((-3.1, -1.5, -3.1), (3.1, 1.5, 3.1), (50, 3))
    quats = np.zeros((50, 4))
    for quat, (yaw, pitch, roll) in zip(quats, angles, strict=True):
        mujoco.mju_euler2Quat(quat, np.array((yaw, pitch, roll)), "zyx")
    torch.testing.assert_close(attitude.yaw(torch.from_numpy(quats)), torch.from_numpy(angles[:, 0].copy()))
    torch.testing.assert_close(attitude.roll(torch.from_numpy(quats)), torch.from_numpy(angles[:, 2].copy()))


def test_wrapped() -> None:
    angles = torch.tensor((0.0, 3.0, 4.0, -4.0, 2 * math.pi, -math.pi))
    expected = torch.tensor((0.0, 3.0, 4.0 - 2 * math.pi, 2 * math.pi - 4.0, 0.0, -math.pi))
    torch.testing.assert_close(attitude.wrapped(angles), expected, atol=1e-6, rtol=0)
