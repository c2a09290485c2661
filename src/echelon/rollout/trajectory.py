"""Rewards and episode ends: with values, the inputs of targets."""

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
        """1 where the episode continues after this step."""
        return (~(self.terminated | self.truncated)).to(self.reward.dtype)

    def bootstrapped_reward(self, discount: float | Tensor) -> Tensor:
        """Reward plus, where the time limit cut the episode, the discounted value of its last state."""
        cut = (self.truncated & ~self.terminated).to(self.reward.dtype)
        return self.reward + discount * self.final_value * cut
