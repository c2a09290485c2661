"""Random numbers of a run, or of several that train side by side, each with a generator of its own."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Generators:
    """A generator per run, for runs that train side by side: each has an equal block of environments and networks."""

    each: tuple[torch.Generator, ...]


Source = torch.Generator | Generators


def draw(source: Source, rows: int, sample: Callable[[torch.Generator, int], Tensor]) -> Tensor:
    """Random numbers `[rows, ...]`. `sample(generator, n)` draws n rows; each run draws its own, as it would alone."""
    if isinstance(source, torch.Generator):
        return sample(source, rows)
    return torch.cat([sample(generator, rows // len(source.each)) for generator in source.each])


def generators_of(*sources: Source) -> tuple[torch.Generator, ...]:
    """All generators in `sources`."""
    found: list[torch.Generator] = []
    for source in sources:
        found += [source] if isinstance(source, torch.Generator) else source.each
    return tuple(found)
