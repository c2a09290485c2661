"""Angles at the edges of their ranges, and matrices. `originals` compares every other rotation, row by row."""

import math

import torch
from torch.testing import assert_close

from echelon.tasks import rotations


def test_angles_past_rounding_and_wrapped() -> None:
    assert rotations.angle(torch.tensor([0.0, 1.0001, 0.0, 0.0])).item() == torch.tensor(math.pi).item()
    angles = torch.tensor((0.0, 3.0, 4.0, -4.0, 2 * math.pi, -math.pi))
    expected = torch.tensor((0.0, 3.0, 4.0 - 2 * math.pi, 2 * math.pi - 4.0, 0.0, -math.pi))
    assert_close(rotations.wrapped(angles), expected, atol=1e-6, rtol=0)


def test_a_matrix_turns_as_its_quaternion_does() -> None:
    quats, vectors = torch.randn(50, 7, generator=torch.Generator().manual_seed(0)).double().split((4, 3), dim=1)
    quats = quats / quats.norm(dim=1, keepdim=True)
    assert_close((rotations.matrix(quats) @ vectors[:, :, None])[:, :, 0], rotations.to_world(quats, vectors))
