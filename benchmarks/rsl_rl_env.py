"""Our environments as rsl_rl's `VecEnv`, so that its PPO trains on the same physics, rewards and clocks as ours."""

from collections import defaultdict

import torch
from rsl_rl.env import VecEnv
from tensordict import TensorDict
from torch import Tensor

from echelon.envs.contract import Env, Groups


class RslRlEnv(VecEnv):
    """Wraps an `Env`. Besides the adapting it keeps what a comparison needs: returns and figures of ended episodes.

    rsl_rl bootstraps a truncated row with V of the observation before the step (`time_outs`); it has no place for
    `final_obs`. It also knows no action bounds; the task clamps.
    """

    def __init__(self, env: Env) -> None:
        self.env = env
        self.num_envs = env.num_envs
        self.num_actions = env.action_dim
        self.max_episode_length = env.episode_length
        self.device = env.device
        self.cfg = {}
        self.episode_length_buf = torch.zeros(env.num_envs, dtype=torch.long, device=env.device)
        self._return = torch.zeros(env.num_envs, device=env.device)
        self._sums: dict[str, float] = defaultdict(float)
        self._counts: dict[str, float] = defaultdict(float)
        self._obs = self.tensordict(env.reset(), env.num_envs)

    def get_observations(self) -> TensorDict:
        """The observations to act on now."""
        return self._obs

    def step(self, actions: Tensor) -> tuple[TensorDict, Tensor, Tensor, dict]:
        """One control step in rsl_rl's terms: one done flag, truncations beside it in `time_outs`."""
        step = self.env.step(actions)
        done = step.terminated | step.truncated
        self._return += step.reward
        self.episode_length_buf += 1
        ended = {"return": self._return, "length": self.episode_length_buf, "fell": step.terminated}
        for name, value in ended.items():
            self._add(name, value, done)
        for name, value in step.log.items():
            self._add(name, value, done if name.startswith("episode/") else torch.ones_like(done))
        self._return = self._return.masked_fill(done, 0.0)
        self.episode_length_buf = self.episode_length_buf.masked_fill(done, 0)
        self._obs = self.tensordict(step.obs, self.num_envs)
        return self._obs, step.reward, done, {"time_outs": step.truncated}

    def figures(self) -> dict[str, float]:
        """Averages since the last call: over ended episodes for `return`, `length` and `episode/*`, else over steps."""
        means = {name: self._sums[name] / self._counts[name] for name in self._sums if self._counts[name]}
        self._sums.clear()
        self._counts.clear()
        return means

    def _add(self, name: str, value: Tensor, where: Tensor) -> None:
        self._sums[name] += float((value * where).sum())
        self._counts[name] += float(where.sum())

    @staticmethod
    def tensordict(obs: Groups, num_envs: int) -> TensorDict:
        """Observation groups as rsl_rl takes them."""
        return TensorDict(dict(obs), batch_size=[num_envs])
