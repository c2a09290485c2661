"""The data of one iteration: time first, written once, never duplicated."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial

import torch
from torch import Tensor

from echelon.envs.contract import Groups, Size, dtype_of, shape_of


@dataclass(frozen=True)
class Trajectory:
    """Rewards and episode ends of n environments; all `[T, n]`."""

    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    final_value: Tensor

    @property
    def live(self) -> Tensor:
        """1 where the episode continues after this step."""
        return (~(self.terminated | self.truncated)).to(self.reward.dtype)

    def bootstrapped_reward(self, discount: float | Tensor) -> Tensor:
        """Reward plus, where the time limit cut the episode, the discounted value of its last state."""
        cut = (self.truncated & ~self.terminated).to(self.reward.dtype)
        return self.reward + discount * self.final_value * cut


@dataclass
class Rollout:
    """T steps of N environments. Tensors with T+1 rows end with the state that the next rollout starts from."""

    obs: Groups
    """`[T+1, N, D]` each, raw; images `[T+1, N, C, H, W]`, a byte per number."""
    start: Tensor
    """`[T+1, N]` bool: an episode begins at this row."""
    state: Tensor
    """`[T+1, N, S]` recurrent state of the collector before this row, zero where an episode begins."""
    action: Tensor
    """`[T, N, A]` as sampled, before the environment's clamp to [-1, 1]."""
    mean: Tensor
    """`[T, N, A]` of the policy that acted."""
    log_std: Tensor
    """`[M, A]` of all policies while this rollout was collected."""
    log_prob: Tensor
    """`[T, N]` of the action under the policy that acted."""
    value: Tensor
    """`[T+1, N]` under the policy that acted, in units of scaled reward."""
    reward: Tensor
    """`[T, N]` of the environment, scaled."""
    terminated: Tensor
    """`[T, N]` bool."""
    truncated: Tensor
    """`[T, N]` bool."""
    final_value: Tensor
    """`[T, N]` what a truncated row is bootstrapped with, zero elsewhere."""

    @classmethod
    def allocate(
        cls,
        horizon: int,
        num_envs: int,
        obs_spec: Mapping[str, Size],
        action_dim: int,
        state_dim: int,
        policies: int,
        device: torch.device,
    ) -> "Rollout":
        """Empty storage, reused by every iteration."""
        floats, flags = partial(torch.zeros, device=device), partial(torch.zeros, dtype=torch.bool, device=device)
        return cls(
            obs={
                name: torch.zeros((horizon + 1, num_envs, *shape_of(size)), dtype=dtype_of(size), device=device)
                for name, size in obs_spec.items()
            },
            start=flags(horizon + 1, num_envs),
            state=floats(horizon + 1, num_envs, state_dim),
            action=floats(horizon, num_envs, action_dim),
            mean=floats(horizon, num_envs, action_dim),
            log_std=floats(policies, action_dim),
            log_prob=floats(horizon, num_envs),
            value=floats(horizon + 1, num_envs),
            reward=floats(horizon, num_envs),
            terminated=flags(horizon, num_envs),
            truncated=flags(horizon, num_envs),
            final_value=floats(horizon, num_envs),
        )

    @property
    def horizon(self) -> int:
        return self.action.shape[0]

    @property
    def trajectory(self) -> Trajectory:
        """Rewards and episode ends, which targets are computed from."""
        return Trajectory(self.reward, self.terminated, self.truncated, self.final_value)

    def map(self, change: Callable[[Tensor], Tensor]) -> "Rollout":
        """Apply `change`, which selects or reorders environments, the second dimension of all but `log_std`."""
        names = [field.name for field in fields(self) if field.name not in ("obs", "log_std")]
        changed = {name: change(getattr(self, name)) for name in names}
        return replace(self, obs={name: change(x) for name, x in self.obs.items()}, **changed)
