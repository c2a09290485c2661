"""The success tolerance, one for all environments, which shrinks as they succeed."""

import torch
from torch import Tensor


class Tolerance:
    """Starts at `start` and shrinks by `shrink` down to `target`, in metres.

    It shrinks when `interval` control steps have passed since the last change and the mean number of successes per
    episode is at least `successes`. All is computed on the device.
    """

    def __init__(
        self, start: float, target: float, shrink: float, interval: int, successes: float, device: torch.device
    ) -> None:
        self.start, self.target, self.shrink = start, target, shrink
        self.interval, self.successes = interval, successes
        self.value = torch.full((), start, device=device)
        self.steps = torch.zeros((), dtype=torch.int64, device=device)
        """Control steps since the tolerance last changed."""
        self.fixed = False
        """Whether it no longer changes, for evaluation."""

    def advance(self, last_successes: Tensor) -> None:
        """Advance by one control step; `last_successes [N]` are those of each environment's last finished episode."""
        if self.fixed:
            return
        self.steps += 1
        due = (self.steps >= self.interval) & (last_successes.mean() >= self.successes)
        smaller = (self.shrink * self.value).clamp(self.target, self.start)
        self.value.copy_(torch.where(due, smaller, self.value))
        self.steps.masked_fill_(due, 0)

    def objective(self, successes: Tensor) -> Tensor:
        """`[N]`: a score of episodes with `successes [N]` that is comparable across tolerances.

        The progress of the tolerance counts from 0 to 1; successes count in full only at the target.
        """
        way = self.start - self.target
        gained = (self.start - self.value) / way if way > 0.0 else torch.ones_like(self.value)
        return gained + torch.where(self.value > self.target, 0.01, 1.0) * successes
