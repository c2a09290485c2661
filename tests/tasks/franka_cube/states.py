"""States of the Franka tasks put there by hand."""

from typing import Any

import tasks.states
import torch
from tasks.states import UPRIGHT

PUSH, STACK = "FrankaCubePush", "FrankaCubeStack"
HOME = (0.0, 0.1963, 0.0, -2.618, 0.0, 2.9416, 0.7854)
FAR = (0.0, 0.55, 1.05)
"""On the table, out of the way of all that is tried."""


def put(env: Any, cube: Any, other: Any, joints: Any = HOME) -> Any:
    """Cube A and the goal or cube B at `[N, 3]`, everything at rest."""
    cube, other = (torch.as_tensor(place, device=env.device) for place in (cube, other))
    qpos = env.engine.qpos.clone()
    qpos[:, :3], qpos[:, 3:7] = cube.to(qpos.dtype), torch.tensor(UPRIGHT)
    if "goal" in env.kept:
        env.kept["goal"][:, :3] = other
    else:
        qpos[:, 7:10], qpos[:, 10:14] = other.to(qpos.dtype), torch.tensor(UPRIGHT)
    qpos[:, -9:-2], qpos[:, -2:] = torch.as_tensor(joints), 0.035
    return tasks.states.put(env, qpos)
