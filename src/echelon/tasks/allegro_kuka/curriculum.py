"""The success tolerance, one for all environments of a seed, which shrinks as they succeed."""

from collections.abc import Callable

import torch
from torch import Tensor

from echelon.tasks.allegro_kuka.settings import AllegroKukaConfig


class Tolerance:
    """Shrinks by a factor, down to a target, when some control steps have passed since the last change and the mean
    number of successes per episode is high enough. All is computed on the device.
    """

    def __init__(self, config: AllegroKukaConfig, device: torch.device, seeds: int = 1) -> None:
        self.config = config
        self._shape = () if seeds == 1 else (seeds,)
        self.value = torch.full(self._shape, config.tolerance, device=device)
        self.steps = torch.zeros(self._shape, dtype=torch.int64, device=device)
        """Control steps since the tolerance last changed."""
        self.fixed = False
        """Whether it no longer changes, for evaluation."""
        self.mean_of_ranks: Callable[[Tensor], Tensor] = lambda x: x
        """The mean of what all ranks have, each with its share of the environments."""

    def advance(self, last_successes: Tensor) -> None:
        """Advance by one control step; `last_successes [N]` are those of each environment's last finished episode."""
        if self.fixed:
            return
        config = self.config
        self.steps += 1
        successes = self.mean_of_ranks(last_successes.view(*self._shape, -1).mean(-1))
        due = (self.steps >= config.tolerance_interval) & (successes >= config.tolerance_successes)
        smaller = (config.tolerance_shrink * self.value).clamp(config.target_tolerance, config.tolerance)
        self.value.copy_(torch.where(due, smaller, self.value))
        self.steps.masked_fill_(due, 0)

    def objective(self, successes: Tensor) -> Tensor:
        """`[N]`: a score of episodes with `successes [N]` that is comparable across tolerances.

        The progress of the tolerance counts from 0 to 1; successes count in full only at the target.
        """
        start, target = self.config.tolerance, self.config.target_tolerance
        value = self.of_each(len(successes))
        gained = (start - value) / (start - target) if start > target else torch.ones_like(value)
        return gained + torch.where(value > target, 0.01, 1.0) * successes

    def of_each(self, num_envs: int) -> Tensor:
        """`[N]`: that of each environment."""
        return self.value.view(-1, 1).expand(-1, num_envs // self.value.numel()).reshape(-1)
