"""Rotations against MuJoCo's own, and angles against the order they are defined by."""

import math

import mujoco
import numpy as np
import torch
from torch.testing import assert_close

from echelon.tasks import rotations


def test_products_turns_and_angles_are_mujocos() -> None:
    rng = np.random.default_rng(0)
    angles = torch.from_numpy(rng.uniform((-3.1, -1.5, -3.1), (3.1, 1.5, 3.1), (50, 3)))
    vectors = torch.from_numpy(rng.normal(size=(50, 3)))
    quats, tilts, products, world, spins = (torch.zeros(50, size).double() for size in (4, 4, 4, 3, 3))
    for i in range(50):
        quat, tilt = quats[i].numpy(), tilts[i].numpy()
        mujoco.mju_euler2Quat(quat, angles[i].numpy(), "zyx")  # yaw, pitch, roll
        mujoco.mju_euler2Quat(tilt, np.array([*angles[i, :2], 0.0]), "xyz")
        mujoco.mju_mulQuat(products[i].numpy(), quat, tilt)
        mujoco.mju_rotVecQuat(world[i].numpy(), vectors[i].numpy(), quat)
        mujoco.mju_quat2Vel(spins[i].numpy(), quat, 1.0)
    assert_close(rotations.about_x_then_y(angles[:, 0], angles[:, 1]), tilts)
    assert_close(rotations.multiply(quats, tilts), products)
    assert_close(rotations.multiply(quats, rotations.conjugate(quats)), torch.eye(4).double()[:1].expand(50, 4))
    assert_close(rotations.to_world(quats, vectors), world)
    assert_close(rotations.to_base(quats, world), vectors)
    assert_close((world[:, None] @ rotations.matrix(quats))[:, 0], vectors)
    assert_close(rotations.yaw(quats), angles[:, 0])
    assert_close(rotations.roll(quats), angles[:, 2])
    for same in (quats, -quats):
        assert_close(rotations.angle(same), spins.norm(dim=1))
    assert rotations.xyzw(torch.tensor([[1.0, 2.0, 3.0, 4.0]])).tolist() == [[2.0, 3.0, 4.0, 1.0]]


def test_angles_past_rounding_and_wrapped() -> None:
    assert rotations.angle(torch.tensor([0.0, 1.0001, 0.0, 0.0])).item() == torch.tensor(math.pi).item()
    angles = torch.tensor((0.0, 3.0, 4.0, -4.0, 2 * math.pi, -math.pi))
    expected = torch.tensor((0.0, 3.0, 4.0 - 2 * math.pi, 2 * math.pi - 4.0, 0.0, -math.pi))
    assert_close(rotations.wrapped(angles), expected, atol=1e-6, rtol=0)
