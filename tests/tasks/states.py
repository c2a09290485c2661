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
