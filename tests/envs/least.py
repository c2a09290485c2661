"""An environment that has as little as it may."""

import torch
from torch import Tensor

from echelon.envs.contract import Groups, Step


class Counter:
    """As little as an environment can have: no state, no last observations, a number in its log."""

    action_dim, obs_spec, episode_length = 1, {"policy": 2}, 5

    def __init__(self, num_envs: int, device: torch.device, seed: int, *, bonus: float = 0.0) -> None:
        self.num_envs, self.device, self.bonus, self.clock = num_envs, device, bonus, 0

    def reset(self) -> Groups:
        self.clock = 0
        return self._observe()

    def step(self, action: Tensor) -> Step:
        self.clock += 1
        over = torch.full((self.num_envs,), self.clock == self.episode_length)
        reward = 1 + self.bonus - action[:, 0].square()
        obs = self.reset() if over.all() else self._observe()
        return Step(obs, reward, torch.zeros_like(over), over, log={"clock": self.clock})

    def _observe(self) -> Groups:
        return {"policy": torch.full((self.num_envs, 2), float(self.clock))}


def make(num_envs: int, device: torch.device, seed: int, bonus: float = 0.0) -> Counter:
    return Counter(num_envs, device, seed, bonus=bonus)
