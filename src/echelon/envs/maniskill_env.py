"""ManiSkill's environments: `--env maniskill:PickCube-v1`. On CUDA nothing leaves the device."""

# The package is optional.
# pyright: reportMissingImports=false

from typing import Any

import gymnasium
import mani_skill.envs  # noqa: F401  # registers them
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from mani_skill.utils.wrappers.gymnasium import CPUGymWrapper
from mani_skill.vector.wrappers.gymnasium import ManiSkillVectorEnv
from torch import Tensor

from echelon.envs.contract import Env, Groups, Step
from echelon.envs.gymnasium_env import GymnasiumEnv
from echelon.errors import UserError, first_line


def make(name: str, num_envs: int, device: torch.device, seed: int, **args: Any) -> Env:
    """`num_envs` copies of a task with `obs_mode=state`; `args` are those of `gymnasium.make`."""
    args = {"obs_mode": "state"} | args
    try:
        if device.type == "cpu":  # where ManiSkill simulates one copy at a time
            return GymnasiumEnv(
                SyncVectorEnv(
                    [lambda: CPUGymWrapper(gymnasium.make(name, sim_backend="cpu", **args))] * num_envs,
                    autoreset_mode=AutoresetMode.SAME_STEP,
                ),
                device,
                seed,
            )
        env = gymnasium.make(name, num_envs=num_envs, sim_backend="gpu", **args)
    except gymnasium.error.Error as error:
        raise UserError(f"ManiSkill cannot make {name}: {first_line(error)}") from None
    return ManiSkillEnv(ManiSkillVectorEnv(env, auto_reset=True, record_metrics=True), device, seed)


class ManiSkillEnv:
    """Many copies in one simulation on CUDA."""

    def __init__(self, env: ManiSkillVectorEnv, device: torch.device, seed: int) -> None:
        self.env, self.num_envs, self.device = env, env.num_envs, device
        self._seed: int | None = seed
        self.episode_length = int(env.max_episode_steps)
        space = env.single_action_space
        self.action_low, self.action_high = (torch.from_numpy(x).float() for x in (space.low, space.high))
        self.action_dim = len(self.action_low)
        self.obs_spec = {"policy": int(env.single_observation_space.shape[0])}

    def reset(self) -> Groups:
        """Start a new episode in every environment; the first time from the seed."""
        obs, _ = self.env.reset(seed=self._seed)
        self._seed = None
        return {"policy": obs}

    def step(self, action: Tensor) -> Step:
        """Advance all environments by one control step."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        ended, final = terminated.bool(), info.get("final_observation")
        success = info.get("final_info", info).get("success", torch.zeros_like(ended))
        log = {"episode/successes": success.float()}
        last = {"policy": obs if final is None else final}
        return Step({"policy": obs}, reward, ended, truncated.bool() & ~ended, last, log)
