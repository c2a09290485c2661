"""Isaac Lab's tasks: `--env isaaclab:Isaac-Repose-Cube-Allegro-v0`.

Written against its documented interface and tested with a stand-in: Isaac Sim could not be installed where this was
written.
"""

# The package is optional.
# pyright: reportMissingImports=false

from typing import Any

import torch
from isaaclab.app import AppLauncher

from echelon.envs.contract import Env
from echelon.envs.torch_env import TorchEnv, set_fields

_app: list[AppLauncher] = []


def make(name: str, num_envs: int, device: torch.device, seed: int, /, **args: Any) -> Env:
    """`num_envs` copies of a task; `args` are fields of its environment's config, such as `episode_length_s`."""
    if not _app:  # the simulator runs once a process, and before anything of it can be imported
        _app.append(AppLauncher(headless=True))
    import gymnasium
    import isaaclab_tasks  # noqa: F401  # registers them
    from isaaclab_tasks.utils import parse_env_cfg

    config = parse_env_cfg(name, device=str(device), num_envs=num_envs)
    config.seed = seed
    set_fields(config, args)
    return TorchEnv(gymnasium.make(name, cfg=config).unwrapped)
