"""mjlab's tasks: `--env mjlab:Mjlab-Velocity-Flat-Unitree-Go1`."""

# The package is optional.
# pyright: reportMissingImports=false

from typing import Any

import mjlab.tasks  # noqa: F401  # registers them
import torch
from mjlab.envs import ManagerBasedRlEnv
from mjlab.tasks.registry import list_tasks, load_env_cfg

from echelon.envs.contract import Env
from echelon.envs.managed import ManagedEnv, set_fields
from echelon.errors import UserError, nearest


def make(name: str, num_envs: int, device: torch.device, seed: int, /, **args: Any) -> Env:
    """`num_envs` copies of a task; `args` are fields of its environment's config, such as `episode_length_s`."""
    if name not in list_tasks():
        raise UserError(f"{name} is not a task of mjlab{nearest(name, list_tasks())}")
    config = load_env_cfg(name)
    config.scene.num_envs, config.seed = num_envs, seed
    set_fields(config, args)
    return ManagedEnv(ManagerBasedRlEnv(cfg=config, device=str(device)))
