"""Where parameters lie in one flat tensor."""

from collections.abc import Iterable
from itertools import accumulate

ALIGNMENT = 32
"""Each parameter starts at a multiple of this many numbers. Matrix products on CUDA read 16 bytes at a time if a matrix
starts at a multiple of that, and are up to three times slower if not."""


def aligned_slices(sizes: Iterable[int]) -> tuple[list[slice], int]:
    """A slice for each size, aligned, and the length of the whole. The gaps are padding and stay zero."""
    sizes = list(sizes)
    padded = [-(-size // ALIGNMENT) * ALIGNMENT for size in sizes]
    starts = list(accumulate(padded, initial=0))
    return [slice(start, start + size) for start, size in zip(starts, sizes, strict=False)], starts[-1]
