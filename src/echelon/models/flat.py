"""Where parameters lie in one flat tensor."""

from collections.abc import Iterable
from itertools import accumulate

ALIGNMENT = 32
"""Numbers to whose multiple each parameter's start is rounded up. Matrix products on CUDA read 16 bytes at a time if a
matrix starts at a multiple of that, and are up to three times slower if it does not."""


def aligned_slices(sizes: Iterable[int]) -> tuple[list[slice], int]:
    """A slice for each size, aligned, and the length of the whole. What lies between them is padding and stays zero."""
    sizes = list(sizes)
    padded = [-(-size // ALIGNMENT) * ALIGNMENT for size in sizes]
    starts = list(accumulate(padded, initial=0))
    return [slice(start, start + size) for start, size in zip(starts, sizes, strict=False)], starts[-1]
