"""Environments small enough to know everything about."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor

from echelon.envs.contract import Groups, State, Step


class DriftEnv:
    """Points that drift where the actions push them; episodes end at random and at a time limit.

    With `critic`, the value function sees the episode's clock as well. Without `noise`, an environment's course depends
    on its index and its actions alone, not on how many there are.
    """

    action_dim = 2
    device = torch.device("cpu")

    def __init__(
        self,
        num_envs: int,
        seed: int = 0,
        *,
        end_rate: float = 0.1,
        episode_length: int = 9,
        critic: bool = False,
        noise: bool = True,
    ) -> None:
        self.num_envs, self.episode_length, self.end_rate, self.noise = num_envs, episode_length, end_rate, noise
        self.obs_spec = {"policy": 4} | ({"critic": 5} if critic else {})
        self.generator = torch.Generator().manual_seed(seed)
        self.index = torch.arange(num_envs, dtype=torch.float32)
        self.x = torch.zeros(num_envs, 4)
        self.clock = torch.zeros(num_envs, dtype=torch.int64)

    def reset(self) -> Groups:
        self.clock = (7 * self.index.long()) % self.episode_length if self.noise else torch.zeros_like(self.clock)
        self.x = self._start()
        return self._observe()

    def step(self, action: Tensor) -> Step:
        assert action.shape == (self.num_envs, self.action_dim)
        assert action.abs().max() <= 1
        push = torch.cat((action, action.flip(1)), dim=1)
        self.x = 0.8 * self.x + 0.5 * push + 0.1 * self._random(4)
        self.clock = self.clock + 1
        reward = 1.0 - (self.x[:, :2] - 0.5).square().sum(1)
        terminated = self._chance() < self.end_rate
        truncated = self.clock >= self.episode_length  # may come together with an end: that row is terminated
        final_obs = self._observe()
        done = terminated | truncated
        self.x = torch.where(done[:, None], self._start(), self.x)
        self.clock = torch.where(done, 0, self.clock)
        log = {"height": self.x[:, 0].clone(), "episode/successes": self.x[:, 1].clone()}
        return Step(self._observe(), reward, terminated, truncated, final_obs, log)

    def _observe(self) -> Groups:
        groups = {"policy": self.x.clone()}
        if "critic" in self.obs_spec:
            groups["critic"] = torch.cat((self.x, self.clock[:, None] / self.episode_length), dim=1)
        return groups

    def _start(self) -> Tensor:
        fixed = torch.sin(self.index[:, None] * torch.tensor([1.0, 2.0, 3.0, 4.0]))
        return self._random(4) if self.noise else fixed

    def _chance(self) -> Tensor:
        """Numbers between 0 and 1."""
        if self.noise:
            return torch.rand(self.num_envs, generator=self.generator)
        return torch.frac(1e3 * self.x[:, 0].abs())

    def _random(self, columns: int) -> Tensor:
        if self.noise:
            return torch.randn(self.num_envs, columns, generator=self.generator)
        return torch.zeros(self.num_envs, columns)

    def state_dict(self) -> State:
        return {"x": self.x.clone(), "clock": self.clock.clone(), "generator": self.generator.get_state()}

    def load_state_dict(self, state: State) -> None:
        saved = cast(Mapping[str, Any], state)
        self.x, self.clock = saved["x"].clone(), saved["clock"].clone()
        self.generator.set_state(saved["generator"])


@dataclass
class ScriptedEnv:
    """Plays back what it is told, whatever the actions: `[T, N]` each, `obs` `[T+1, N]`; then starts over."""

    obs: Tensor
    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    final_obs: Tensor
    actions: list[Tensor] = field(default_factory=list)
    """What it was asked to do."""
    t: int = 0
    action_dim: int = 1
    episode_length: int = 100
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def num_envs(self) -> int:
        return self.reward.shape[1]

    @property
    def obs_spec(self) -> dict[str, int]:
        return {"policy": 1}

    def reset(self) -> Groups:
        self.t = 0
        return {"policy": self.obs[0, :, None]}

    def step(self, action: Tensor) -> Step:
        self.actions.append(action.clone())
        t = self.t
        self.t = t + 1
        obs, final = ({"policy": x[:, None]} for x in (self.obs[t + 1], self.final_obs[t]))
        return Step(obs, self.reward[t], self.terminated[t], self.truncated[t], final)
