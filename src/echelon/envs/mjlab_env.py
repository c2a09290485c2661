"""mjlab's tasks: `--env mjlab:Mjlab-Velocity-Flat-Unitree-Go1`."""

# The package is optional.
# pyright: reportMissingImports=false

from typing import Any

import mjlab.tasks  # noqa: F401  # registers them
import torch
from mjlab.envs import ManagerBasedRlEnv
from mjlab.tasks.registry import list_tasks, load_env_cfg

from echelon.envs.contract import Env
from echelon.envs.torch_env import TorchEnv, set_fields
from echelon.errors import UserError, nearest


def make(name: str, num_envs: int, device: torch.device, seed: int, /, **args: Any) -> Env:
    """`num_envs` copies of a task; `args` are fields of its environment's config, such as `episode_length_s`."""
    if name not in list_tasks():
        raise UserError(f"{name} is not a task of mjlab{nearest(name, list_tasks())}")
    config = load_env_cfg(name)
    config.scene.num_envs, config.seed = num_envs, seed
    set_fields(config, args)
    if device.type == "cuda":
        _use_our_solver()
    return TorchEnv(ManagerBasedRlEnv(cfg=config, device=str(device)))


def _use_our_solver() -> None:
    """Let `mujoco_warp.step` solve with our fused kernel, for the models and versions that it supports."""
    try:
        from echelon.sim import newton
    except ImportError:  # a MuJoCo Warp with other parts
        return
    newton.install()
