"""Tasks in states put there by hand."""

from typing import Any, TypeVar

import torch
from torch import Tensor

from echelon.tasks.mujoco_task import MujocoTask

CPU = torch.device("cpu")
T = TypeVar("T", bound=MujocoTask[Any])


def begun(task: type[T], config: Any, num_envs: int) -> T:
    env = task(config, num_envs, CPU, 0)
    env.reset()
    return env


def put(env: T, qpos: Tensor, qvel: Tensor | None = None) -> T:
    """Everywhere: positions `[N, nq]`, and velocities `[N, nv]` or rest."""
    speeds = torch.zeros_like(env.engine.qvel) if qvel is None else qvel
    env.engine.set_state(torch.ones(env.num_envs, dtype=torch.bool), qpos, speeds)
    return env


def check_spread(draws: Tensor, low: Tensor | float, high: Tensor | float, share: float = 0.01) -> None:
    """`draws [N, ...]` lie between these bounds, and come as near to both as this share of what is between them."""
    low, high = (torch.as_tensor(bound, dtype=draws.dtype) for bound in (low, high))
    near, least, most = share * (high - low), draws.amin(dim=0), draws.amax(dim=0)
    assert ((low - 1e-6 <= least) & (least <= low + near)).all(), (least, low)
    assert ((high - near <= most) & (most <= high + 1e-6)).all(), (most, high)
