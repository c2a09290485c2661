"""Check that an environment keeps its contract: shapes, types and devices of what it returns, and sizes of its numbers.

A tensor of a wrong shape that broadcasts would be accepted silently: one reward for all environments, or one
environment's observation for all.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from echelon.envs.contract import Env, Step, dtype_of, shape_of
from echelon.errors import UserError

MAX_MAGNITUDE = 1e10
"""Largest magnitude of a valid observation or reward. MuJoCo rejects states beyond it, too."""
MAX_STATISTIC = MAX_MAGNITUDE**2
"""Largest valid statistic: the variance of valid observations is below it, and any weight or moment far below."""


def require_observations(env: Env, obs: Mapping[str, Any], name: str = "observation") -> None:
    """Raise a `UserError` unless `obs` has each group of `obs_spec`, `[N, D]` floats or images, on its device."""
    if not isinstance(obs, Mapping):
        raise UserError(f"the environment's {name} must be a dict of groups such as policy, not {type(obs).__name__}")
    for group, size in env.obs_spec.items():
        if group not in obs:
            raise UserError(f"the environment's {name} lacks the group {group}, which its obs_spec names")
        kind = "uint8" if dtype_of(size) is torch.uint8 else "floating point"
        _require(env, f"{name} {group}", obs[group], (env.num_envs, *shape_of(size)), kind)


def require_step(env: Env, step: Step) -> None:
    """Raise a `UserError` for the first part of a step that is not what the contract says."""
    require_observations(env, step.obs)
    if step.final_obs is not None:
        require_observations(env, step.final_obs, "final_obs")
    one_each = (env.num_envs,)
    _require(env, "reward", step.reward, one_each, "floating point")
    _require(env, "terminated", step.terminated, one_each, "bool")
    _require(env, "truncated", step.truncated, one_each, "bool")
    for name, x in step.log.items():
        if not isinstance(x, int | float):
            _require(env, f"log {name}", x, one_each if isinstance(x, Tensor) and x.ndim else (), "number")


def find_fault(name: str, x: Tensor, scale: float = 1.0) -> str | None:
    """The first number of `x` `[T, N, ...]` that is not finite or beyond `MAX_MAGNITUDE`, in words; None if all are
    sane. Waits for the device."""
    wrong = ~(x.abs() <= MAX_MAGNITUDE * scale)
    if not wrong.any():
        return None
    t, environment, *place = wrong.nonzero()[0].tolist()
    value = x[(t, environment, *place)].item() / scale
    where = f" (number {place[0]})" if place else ""
    return f"the environment's {name}{where} is {value:g} in environment {environment}"


def _require(env: Env, name: str, x: Any, shape: tuple[int, ...], kind: str) -> None:
    if not isinstance(x, Tensor):
        raise UserError(f"the environment's {name} must be a torch tensor, not {type(x).__name__}")
    if tuple(x.shape) != shape:
        raise UserError(f"the environment's {name} must have the shape {list(shape)}, not {list(x.shape)}")
    fits = {
        "bool": x.dtype is torch.bool,
        "uint8": x.dtype is torch.uint8,
        "floating point": x.is_floating_point(),
        "number": not x.is_complex(),
    }
    if not fits[kind]:
        raise UserError(f"the environment's {name} must be {kind}, not {str(x.dtype).removeprefix('torch.')}")
    if x.device.type != env.device.type or (env.device.index not in (None, x.device.index)):
        raise UserError(f"the environment's {name} must be on {env.device}, where it says it is, not on {x.device}")
