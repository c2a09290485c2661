"""Any `VecEnv` of rsl_rl: what a `make` of your own returns is wrapped by itself. Nothing leaves the device."""

from typing import Any

import torch
from torch import Tensor

from echelon.envs.contract import Groups, Step
from echelon.envs.managed import HeldLog, groups_of


class RslRlEnv:
    """`env` has `num_envs`, `num_actions`, `max_episode_length`, `device`, `get_observations()` and
    `step(actions) -> (obs, reward, dones, extras)`, with `time_outs` among the extras.

    It does not say what it saw before a reset, so `final_obs` is left out; its actions have no limits.
    """

    def __init__(self, env: Any) -> None:
        self.env = env
        self.num_envs, self.action_dim = int(env.num_envs), int(env.num_actions)
        self.device = torch.device(env.device)
        self.episode_length = int(torch.as_tensor(env.max_episode_length).max())
        self.action_high = torch.full((self.action_dim,), torch.inf)
        self.action_low = -self.action_high
        self._log = HeldLog()
        self.obs_spec = {name: x.shape[1] for name, x in self.reset().items()}

    @torch.inference_mode()
    def reset(self) -> Groups:
        """Start a new episode in every environment, where it can; else go on."""
        if not hasattr(self.env, "reset"):
            return groups_of(_first(self.env.get_observations()))
        found = self.env.reset()
        if isinstance(found, tuple):
            self._log(found[1] if isinstance(found[1], dict) else None)
        return groups_of(_first(found))

    @torch.inference_mode()
    def step(self, action: Tensor) -> Step:
        """Advance all environments by one control step."""
        obs, reward, dones, extras = self.env.step(action)
        log = self._log(extras)
        self._log.close()
        done, cut = dones.bool(), extras.get("time_outs")
        truncated = torch.zeros_like(done) if cut is None else cut.bool() & done
        return Step(groups_of(obs), reward.float(), done & ~truncated, truncated, log=log)


def _first(found: Any) -> Any:
    """Observations, which older versions return with extras."""
    return found[0] if isinstance(found, tuple) else found
