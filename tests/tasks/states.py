"""Tasks in states put there by hand."""

import math
from dataclasses import replace
from typing import Any

import mujoco
import torch
from torch import Tensor

from echelon.tasks import info, make

HOW = {"spread_clocks", "blocks"}
UPRIGHT = (1.0, 0.0, 0.0, 0.0)


def turn(axis: tuple[float, float, float], angle: float) -> tuple[float, ...]:
    """The quaternion w x y z of a turn about an axis of length 1."""
    return (math.cos(angle / 2), *(math.sin(angle / 2) * part for part in axis))


def begun(task: str, num_envs: int, device: str = "cpu", seed: int = 0, **settings: Any) -> Any:
    """A task that has been reset, with these settings."""
    how = {name: settings.pop(name) for name in HOW & settings.keys()}
    env = make(task, replace(info(task).preset.env, **settings), num_envs, torch.device(device), seed, **how)
    env.reset()
    return env


def put(env: Any, qpos: Tensor, qvel: Tensor | None = None) -> Any:
    """Everywhere: positions `[N, nq]`, and velocities `[N, nv]` or rest."""
    speeds = torch.zeros_like(env.engine.qvel) if qvel is None else qvel
    env.engine.set_state(torch.ones(env.num_envs, dtype=torch.bool, device=env.device), qpos, speeds)
    return env


def put_object(env: Any, position: Tensor, orientation: Any = UPRIGHT) -> None:
    """What moves freely at `position [N, 3]` and `orientation [N, 4]`; the joints at rest where they were drawn."""
    model, qpos = env.engine.model, env.engine.qpos.clone()
    first = model.jnt_qposadr[model.jnt_type == mujoco.mjtJoint.mjJNT_FREE][0]
    qpos[:, first:][:, :3], qpos[:, first:][:, 3:7] = position, torch.as_tensor(orientation, dtype=torch.float64)
    put(env, qpos)


def check_spread(draws: Tensor, low: Tensor | float, high: Tensor | float, share: float = 0.01) -> None:
    """`draws [N, ...]` lie between these bounds, and come as near to both as this share of what is between them."""
    low, high = (torch.as_tensor(bound, dtype=draws.dtype) for bound in (low, high))
    near, least, most = share * (high - low), draws.amin(dim=0), draws.amax(dim=0)
    assert ((low - 1e-6 <= least) & (least <= low + near)).all(), (least, low)
    assert ((high - near <= most) & (most <= high + 1e-6)).all(), (most, high)
