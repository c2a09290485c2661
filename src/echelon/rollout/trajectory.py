"""Rewards and ends of episodes: what targets are computed from, besides values."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Trajectory:
    """What targets are computed from; all `[T, n]`."""

    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    final_value: Tensor

    def map(self, change: Callable[[Tensor], Tensor]) -> "Trajectory":
        """The same for other environments."""
        return Trajectory(
            change(self.reward), change(self.terminated), change(self.truncated), change(self.final_value)
        )

    @property
    def live(self) -> Tensor:
        """1 where the episode goes on after this step."""
        return (~(self.terminated | self.truncated)).to(self.reward.dtype)

    def bootstrapped_reward(self, discount: float | Tensor) -> Tensor:
        """Reward plus the discounted value of what the time limit cut off."""
        cut = (self.truncated & ~self.terminated).to(self.reward.dtype)
        return self.reward + discount * self.final_value * cut
