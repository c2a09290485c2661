"""Random numbers of a run, or of several that train side by side, each with a generator of its own."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Generators:
    """One of each of several runs, whose environments and networks lie one run after another, equally many of each."""

    each: tuple[torch.Generator, ...]


Source = torch.Generator | Generators


def draw(source: Source, rows: int, sample: Callable[[torch.Generator, int], Tensor]) -> Tensor:
    """Random numbers `[rows, ...]`. `sample(generator, n)` draws n rows; each run draws its own, as it would alone."""
    if isinstance(source, torch.Generator):
        return sample(source, rows)
    return torch.cat([sample(generator, rows // len(source.each)) for generator in source.each])


def generators_of(*sources: Source) -> tuple[torch.Generator, ...]:
    """All of them, one by one."""
    found: list[torch.Generator] = []
    for source in sources:
        found += [source] if isinstance(source, torch.Generator) else source.each
    return tuple(found)
