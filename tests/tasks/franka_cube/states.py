"""States of the Franka tasks put there by hand."""

from typing import Any

import torch
from torch import Tensor

CPU = torch.device("cpu")
CLOSE = {"atol": 1e-5, "rtol": 1e-5}
HOME = (0.0, 0.1963, 0.0, -2.618, 0.0, 2.9416, 0.7854)
FAR = (0.0, 0.55, 1.05)
"""On the table, out of the way of all that is tried."""


def at(x: float, y: float, z: float) -> Tensor:
    return torch.tensor((x, y, z), dtype=torch.float64)


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
