"""Random numbers for all environments of a task."""

import torch
from torch import Tensor


class Chance:
    """Draws a row for each of `num_envs` environments. Those of `blocks` of equal size are the same in every block, so
    that different policies can be compared in equal circumstances, side by side."""

    def __init__(self, generator: torch.Generator, num_envs: int, blocks: int = 1) -> None:
        self.generator, self.blocks, self.each = generator, blocks, num_envs // blocks

    def uniform(self, low: float, high: float, *columns: int) -> Tensor:
        """`[N, *columns]`, evenly distributed."""
        return self._everywhere(self._empty(columns).uniform_(low, high, generator=self.generator))

    def normal(self, *columns: int) -> Tensor:
        """`[N, *columns]`, of mean 0 and deviation 1."""
        return self._everywhere(self._empty(columns).normal_(generator=self.generator))

    def _empty(self, columns: tuple[int, ...]) -> Tensor:
        return torch.empty(self.each, *columns, device=self.generator.device)

    def _everywhere(self, drawn: Tensor) -> Tensor:
        return drawn if self.blocks == 1 else drawn.repeat(self.blocks, *[1] * (drawn.dim() - 1))
