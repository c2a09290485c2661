"""ManiSkill's environments: `--env maniskill:PickCube-v1`. On CUDA nothing leaves the device."""

# The package is optional.
# pyright: reportMissingImports=false

from typing import Any

import gymnasium
import mani_skill.envs  # noqa: F401  # registers them
import torch
from gymnasium.spaces import Box
from mani_skill.utils.gym_utils import find_max_episode_steps_value
from mani_skill.utils.registration import REGISTERED_ENVS
from mani_skill.vector.wrappers.gymnasium import ManiSkillVectorEnv
from torch import Tensor

from echelon.envs.contract import Env, Groups, Step
from echelon.envs.gymnasium_env import reason
from echelon.envs.side_by_side import SideBySide
from echelon.errors import UserError, first_line, nearest

NO_RENDERER = ("rendering device", "physical device", "vk::")
"""Parts of SAPIEN's messages if no Vulkan driver is suitable."""
MISTAKES = (AssertionError, KeyError, NotImplementedError, RuntimeError, TypeError, ValueError)
"""Errors that ManiSkill raises for an unknown argument."""


def make_maniskill(
    name: str, num_envs: int, device: torch.device, seed: int, /, *, ignore_terminations: bool = True, **args: Any
) -> Env:
    """`num_envs` copies of a task; `args` are those of `gymnasium.make`.

    With `ignore_terminations`, episodes last to their time limit. Rewards are positive, so an episode that ended with
    its success would add up to less than one that only comes close, and returns would rank policies wrongly.
    """
    if name not in REGISTERED_ENVS:
        raise UserError(f"{name} is not an environment of ManiSkill{nearest(name, REGISTERED_ENVS)}")
    args = {"obs_mode": "state", "sim_backend": "cpu" if device.type == "cpu" else "gpu"} | args
    if str(args["obs_mode"]).startswith("state"):  # nothing is drawn, though SAPIEN still needs a Vulkan driver
        args = {"render_backend": "none"} | args

    def build(copies: int, first_seed: int) -> ManiSkillEnv:
        env = gymnasium.make(name, num_envs=copies, **args)
        vector = ManiSkillVectorEnv(env, ignore_terminations=ignore_terminations, record_metrics=True)
        return ManiSkillEnv(vector, device, first_seed)

    try:
        if device.type == "cpu":  # where one simulation has one copy
            return SideBySide([build(1, seed + number) for number in range(num_envs)])
        return build(num_envs, seed)
    except EOFError:  # it asks whether to download them, and gets no answer
        raise UserError(
            f"{name} needs files that are not there; get them with python -m mani_skill.utils.download_asset {name}"
        ) from None
    except (gymnasium.error.Error, *MISTAKES) as error:
        if any(words in str(error) for words in NO_RENDERER):
            lacks = f"ManiSkill finds no suitable Vulkan driver, which it needs even for states ({first_line(error)})"
            raise UserError(f"{lacks}; without a GPU, lavapipe of Mesa 25 does (mesa-vulkan-drivers)") from None
        raise UserError(f"ManiSkill cannot make {name}: {reason(error)}") from None


class ManiSkillEnv:
    """Copies in one simulation: any number on CUDA, one on a CPU."""

    def __init__(self, env: ManiSkillVectorEnv, device: torch.device, seed: int) -> None:
        self.env, self.num_envs, self.device = env, env.num_envs, device
        self._seed: int | None = seed
        self.episode_length = int(find_max_episode_steps_value(env))
        actions, observations = env.single_action_space, env.single_observation_space
        for what, space in (("actions", actions), ("observations", observations)):
            if not isinstance(space, Box) or len(space.shape) != 1:
                raise UserError(f"{what} are a Box [D], as obs_mode=state gives, not {type(space).__name__}")
        self.action_low, self.action_high = (torch.from_numpy(x).float() for x in (actions.low, actions.high))
        self.action_dim = len(self.action_low)
        self.obs_spec = {"policy": int(observations.shape[0])}

    @torch.inference_mode()
    def reset(self) -> Groups:
        """The first time from the seed."""
        obs, _ = self.env.reset(seed=self._seed)
        self._seed = None
        return {"policy": obs}

    @torch.inference_mode()
    def step(self, action: Tensor) -> Step:
        obs, reward, terminated, truncated, info = self.env.step(action)
        ended, final = terminated.bool(), info.get("final_observation")
        info = info.get("final_info", info)
        log: dict[str, Tensor | float] = {}
        if "success" in info:
            log["episode/successes"] = info["episode"]["success_once"].float()
            log["episode/success_at_end"] = info["success"].float()
        last = {"policy": obs if final is None else final}
        return Step({"policy": obs}, reward, ended, truncated.bool() & ~ended, last, log)
