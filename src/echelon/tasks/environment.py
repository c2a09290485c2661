"""Environments from Python, by name: `echelon.make("AllegroHand", num_envs=64)`."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from echelon.config import TaskConfig, from_dict
from echelon.config.checks import choose_device
from echelon.tasks import maker, preset

if TYPE_CHECKING:
    from echelon.envs.contract import Env


def make(task: str, num_envs: int = 64, device: str = "auto", seed: int = 0, **settings: Any) -> "Env":
    """`num_envs` copies of a task, or of an environment from elsewhere, such as `gymnasium:Walker2d-v5`.

    `settings` are the task's (`episode_length=100`), or arguments for the environment from elsewhere.
    """
    config = from_dict(preset(task), {"num_envs": num_envs, "device": device, "seed": seed})
    if type(config.env) is TaskConfig:
        config = replace(config, env_arg=tuple(f"{name}={value!r}" for name, value in settings.items()))
    else:
        config = replace(config, env=from_dict(config.env, settings, "env."))
    return maker(config)(config.num_envs, choose_device(config.device), config.seed)
