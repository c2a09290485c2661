"""Running mean and variance of everything seen so far, merged batch by batch in float64."""

import torch
from torch import Tensor, nn

EPSILON = 1e-5


class Normaliser(nn.Module):
    """Cumulative statistics of `[..., width]` data; no decay.

    Starts as one pseudo-sample of mean 0 and variance 1, so that it is usable before the first merge.
    """

    def __init__(self, width: int, clip: float = 5.0) -> None:
        super().__init__()
        self.clip = clip
        self.mean: Tensor
        self.var: Tensor
        self.count: Tensor
        self.register_buffer("mean", torch.zeros(width, dtype=torch.float64))
        self.register_buffer("var", torch.ones(width, dtype=torch.float64))
        self.register_buffer("count", torch.ones((), dtype=torch.float64))

    @property
    def std(self) -> Tensor:
        """`[width]`, float64, never zero."""
        return torch.sqrt(self.var + EPSILON)

    @torch.no_grad()
    def merge(self, data: Tensor) -> None:
        """Take `[..., width]` data into the statistics, in place.

        Chan's parallel formula with the reference's weighting: the unbiased batch variance times the batch's count.
        """
        rows = data.reshape(-1, self.mean.numel()).double()
        count = rows.shape[0]
        var, mean = torch.var_mean(rows, dim=0, correction=min(1, count - 1))  # one row has no unbiased variance
        total = self.count + count
        delta = mean - self.mean
        spread = self.var * self.count + var * count + delta.square() * self.count * count / total
        self.mean.add_(delta * count / total)
        self.var.copy_(spread / total)
        self.count.copy_(total)

    def forward(self, data: Tensor) -> Tensor:
        """`[..., width]` in raw units to about zero mean and unit variance, clipped."""
        return ((data - self.mean.to(data.dtype)) / self.std.to(data.dtype)).clamp(-self.clip, self.clip)

    def denormalise(self, data: Tensor) -> Tensor:
        """`[..., width]` back to raw units."""
        return data.clamp(-self.clip, self.clip) * self.std.to(data.dtype) + self.mean.to(data.dtype)
