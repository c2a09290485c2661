"""Random numbers for all environments of a task."""

from collections.abc import Callable

import torch
from torch import Tensor

from echelon.device.capture import Source, draw, generators_of


class Rng:
    """Draws a row for each of `num_envs` environments.

    They are `blocks` of equal size, which all get the same numbers, so that policies can be compared side by side under
    equal conditions. Several generators draw for equal parts of the environments.
    """

    def __init__(self, generator: Source, num_envs: int, blocks: int = 1) -> None:
        generators = generators_of(generator)
        self.generator, self.blocks, self.device = generator, blocks, generators[0].device
        self.seeds, self.each = len(generators), num_envs // blocks // len(generators)
        """Number of generators, and of environments that each draws for."""

    def uniform(self, low: float, high: float, *columns: int) -> Tensor:
        """Uniform numbers `[N, *columns]`."""
        return self._fill(columns, lambda x, generator: x.uniform_(low, high, generator=generator))

    def normal(self, *columns: int) -> Tensor:
        """Normal numbers `[N, *columns]` of mean 0 and deviation 1."""
        return self._fill(columns, lambda x, generator: x.normal_(generator=generator))

    def integers(self, low: int, high: int) -> Tensor:
        """Integers `[N]` below `high`, which differ between blocks."""

        def sample(generator: torch.Generator, rows: int) -> Tensor:
            return torch.empty(rows, dtype=torch.int64, device=self.device).random_(low, high, generator=generator)

        return draw(self.generator, self.blocks * self.seeds * self.each, sample)

    def _fill(self, columns: tuple[int, ...], fill: Callable[[Tensor, torch.Generator], Tensor]) -> Tensor:
        def sample(generator: torch.Generator, rows: int) -> Tensor:
            return fill(torch.empty(rows, *columns, device=self.device), generator)

        drawn = draw(self.generator, self.seeds * self.each, sample)
        return drawn if self.blocks == 1 else drawn.repeat(self.blocks, *[1] * (drawn.dim() - 1))
