"""Rewards and episode ends: the inputs of targets besides values."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Trajectory:
    """Rewards and episode ends of n environments; all `[T, n]`."""

    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    final_value: Tensor

    @property
    def live(self) -> Tensor:
        """1 where the episode goes on after this step."""
        return (~(self.terminated | self.truncated)).to(self.reward.dtype)

    def bootstrapped_reward(self, discount: float | Tensor) -> Tensor:
        """Reward plus the discounted value of what the time limit cut off."""
        cut = (self.truncated & ~self.terminated).to(self.reward.dtype)
        return self.reward + discount * self.final_value * cut
