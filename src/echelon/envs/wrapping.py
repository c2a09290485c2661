"""What a function of the user's returned, as an `Env`."""

from typing import Any

from echelon.envs.contract import Env
from echelon.errors import UserError

MEMBERS = ("num_envs", "action_dim", "obs_spec", "episode_length", "device", "reset", "step")


def as_env(made: Any, source: str) -> Env:
    """`made` itself, or wrapped if it is a vector environment of another library."""
    if all(hasattr(made, name) for name in MEMBERS):
        return made
    if all(hasattr(made, name) for name in ("num_envs", "single_action_space", "max_episode_length", "device")):
        from echelon.envs.managed import ManagedEnv

        return ManagedEnv(made)
    if all(hasattr(made, name) for name in ("get_observations", "num_actions", "max_episode_length")):
        from echelon.envs.rsl_rl_env import RslRlEnv

        return RslRlEnv(made)
    if all(hasattr(made, name) for name in ("num_envs", "single_action_space", "single_observation_space")):
        import torch

        from echelon.envs.gymnasium_env import GymnasiumEnv

        return GymnasiumEnv(made, torch.device("cpu"))
    if hasattr(made, "action_space") and hasattr(made, "observation_space"):
        raise UserError(
            f"{source} made one environment, not num_envs of them; return gymnasium.vector.SyncVectorEnv of many"
        )
    missing = [name for name in MEMBERS if not hasattr(made, name)]
    raise UserError(f"{source} made a {type(made).__name__}, which lacks {', '.join(missing)}; see echelon env check")
