"""Vector environments of Gymnasium from a function of one's own: the pendulum, which sees its clock as well."""

import gymnasium
import torch
from gymnasium.vector import SyncVectorEnv
from gymnasium.wrappers import TimeAwareObservation


def make(num_envs: int, device: torch.device, seed: int, g: float = 10.0) -> SyncVectorEnv:
    def one() -> gymnasium.Env:
        return TimeAwareObservation(gymnasium.make("Pendulum-v1", g=g, max_episode_steps=20), flatten=False)

    return SyncVectorEnv([one] * num_envs)
