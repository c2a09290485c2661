"""States of the Franka tasks put there by hand, and where the arm then is by plane geometry."""

import math
from typing import Any

import torch
from torch import Tensor

CPU = torch.device("cpu")
CLOSE = {"atol": 1e-5, "rtol": 1e-5}
HOME = (0.0, 0.1963, 0.0, -2.618, 0.0, 2.9416, 0.7854)
LOW_POSE = (0.0, 0.5, 0.0, -2.4, 0.0, 2.9, 0.7854)
"""The fingers just above the table."""
FAR = (0.0, 0.55, 1.05)
"""On the table, out of the way of all that is tried."""


def at(x: float, y: float, z: float) -> Tensor:
    return torch.tensor((x, y, z), dtype=torch.float64)


def closeness(distance: float) -> float:
    """What rewards make of a distance."""
    return 1.0 - math.tanh(10.0 * distance)


def tilt(joints: tuple[float, ...]) -> float:
    """How far the hand tilts forward from pointing straight down, in radians; the other joints are as at home."""
    return -(joints[1] - joints[3] - joints[5])


def grip(joints: tuple[float, ...]) -> Tensor:
    """`[3]`: the point between the fingertips, by a chain in the plane y = 0; angles count from the vertical."""

    def along(angle: float) -> Tensor:
        return torch.tensor((math.sin(angle), math.cos(angle)), dtype=torch.float64)

    def across(angle: float) -> Tensor:
        return torch.tensor((math.cos(angle), -math.sin(angle)), dtype=torch.float64)

    upper, lower, hand = joints[1], joints[1] - joints[3], -tilt(joints)
    place = torch.tensor((-0.45, 1.125 + 0.333), dtype=torch.float64)
    place += 0.316 * along(upper) + 0.0825 * across(upper)
    place += 0.384 * along(lower) - 0.0825 * across(lower)
    place += 0.088 * across(hand) - (0.107 + 0.1025) * along(hand)
    return torch.tensor((place[0], 0.0, place[1]))


def put(env: Any, cube: Tensor, other: Tensor, joints: Tensor | None = None, fingers: float = 0.035) -> None:
    """Cube A at `[N, 3 or 7]`, the goal or cube B at `[N, 3]`, everything at rest."""
    count = env.num_envs
    qpos = env.engine.qpos.clone()
    qpos[:, :7] = torch.tensor((0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0))
    qpos[:, : cube.shape[1]] = cube.double()
    if "goal" in env.kept:
        env.kept["goal"][:, :3] = other
    else:
        qpos[:, 7:14] = torch.tensor((0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0))
        qpos[:, 7:10] = other.double()
    qpos[:, -9:-2] = torch.tensor(HOME) if joints is None else joints
    qpos[:, -2:] = fingers
    env.engine.set_state(
        torch.ones(count, dtype=torch.bool, device=env.device), qpos, torch.zeros_like(env.engine.qvel)
    )
