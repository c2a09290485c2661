"""Running mean and variance of everything seen so far, merged batch by batch in float64."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from echelon.ranks import ALONE, Ranks

EPSILON = 1e-5
LIMIT, ENOUGH = 100.0, 1_000
"""Once `ENOUGH` rows are known, statistics take a row as at most `LIMIT` deviations from the mean, or `LIMIT` if the
deviation is below 1. Robots observe numbers about 1, and a flag that is seldom set may be hundreds of deviations away,
so ordinary runs never meet the limit. But one 1e5 among a million ordinary rows, taken in full, makes all others
look alike for the rest of a run. What stays far away gets through: every batch of it multiplies the deviation."""


class Normaliser(nn.Module):
    """Cumulative statistics of `[..., width]` data for each of G networks; no decay.

    Starts as one pseudo-sample of mean 0 and variance 1, so that it is usable before the first merge.
    """

    def __init__(self, width: int, clip: float = 5.0) -> None:
        super().__init__()
        self.clip = clip
        self.mean: Tensor
        self.var: Tensor
        self.count: Tensor
        self.register_buffer("mean", torch.zeros(1, width, dtype=torch.float64))
        self.register_buffer("var", torch.ones(1, width, dtype=torch.float64))
        self.register_buffer("count", torch.ones(1, dtype=torch.float64))

    @property
    def std(self) -> Tensor:
        """`[G, width]`, float64, never zero."""
        return torch.sqrt(self.var + EPSILON)

    @torch.no_grad()
    def merge(self, data: Tensor, ranks: Ranks = ALONE) -> None:
        """Take `[..., G·n, width]` data, network by network, of all ranks into the statistics, in place.

        Chan's parallel formula with the reference's weighting: the unbiased batch variance times the batch's count.
        """
        networks, width = self.mean.shape
        rows = data.unflatten(-2, (networks, -1)).movedim(-3, 0).reshape(networks, -1, width).double()
        count = rows.shape[1] * ranks.size
        var, mean = (x[:, 0] for x in ranks.var_mean(rows, (1,)))
        before, total = self.count[:, None], self.count[:, None] + count
        delta = mean - self.mean
        spread = self.var * before + var * count + delta.square() * before * count / total
        self.mean.add_(delta * count / total)
        self.var.copy_(spread / total)
        self.count.copy_(total[:, 0])

    def limited(self, data: Tensor) -> tuple[Tensor, Tensor]:
        """`[..., G·n, width]` data within the limit, and `[G]`: how many rows were beyond it."""
        room = torch.where(self.count[:, None] < ENOUGH, torch.inf, LIMIT * self.std.clamp(min=1.0))
        low, high = ((self.mean + side * room).to(data.dtype)[:, None] for side in (-1, 1))
        each = data.unflatten(-2, (len(room), -1))
        limited = each.clamp(low, high)
        far = (limited != each).any(-1)
        return limited.flatten(-3, -2), far.movedim(-2, 0).flatten(1).sum(1)

    def distance(self, data: Tensor) -> Tensor:
        """`[..., G·n]`: deviations of the furthest column from its mean."""
        return self._of_each(data, lambda x, mean, std: ((x - mean) / std).abs()).amax(-1)

    def forward(self, data: Tensor) -> Tensor:
        """`[..., G·n, width]` in raw units to about zero mean and unit variance, clipped."""
        return self._of_each(data, lambda x, mean, std: ((x - mean) / std).clamp(-self.clip, self.clip))

    def denormalise(self, data: Tensor) -> Tensor:
        """`[..., G·n, width]` back to raw units."""
        return self._of_each(data, lambda x, mean, std: x.clamp(-self.clip, self.clip) * std + mean)

    def _of_each(self, data: Tensor, change: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Tensor:
        """`change(data, mean, std)` with the statistics of each row's network."""
        mean, std = self.mean.to(data.dtype), self.std.to(data.dtype)
        if len(mean) == 1:
            return change(data, mean[0], std[0])
        return change(data.unflatten(-2, (len(mean), -1)), mean[:, None], std[:, None]).flatten(-3, -2)
