"""The looks of each method, the same in the page, in the figures and in every report.

Neighbouring colours can be told apart with any common colour blindness, on a light and on a dark ground;
tests/report/test_palette.py states by how much. Beyond eight methods colours come again, with other dashes.
"""

from collections.abc import Sequence
from typing import NamedTuple

from echelon.report.methods import Method

COLOURS = ("#E12F00", "#044189", "#438C6C", "#D760AD", "#6A3200", "#5831F5", "#302526", "#0A96F3")
DARK_COLOURS = ("#FF9E61", "#1C8EFE", "#16FFD1", "#F60B7A", "#B47F04", "#AB68B1", "#9BA5AC", "#3DC3FF")
"""The same hues for a dark ground."""
DASHES: tuple[tuple[float, ...], ...] = ((), (6, 2), (2, 1.5), (8, 2, 2, 2), (4, 1), (1, 1), (6, 1, 1, 1), (3, 3))


class Look(NamedTuple):
    """A method's line."""

    colour: int
    """Index into `COLOURS`."""
    dash: int
    """Index into `DASHES`."""


def looks(methods: Sequence[Method]) -> list[Look]:
    """A look per method: its algorithm's colour if no method has it yet, otherwise the next free one. No two of up to
    64 methods have the same colour and dashes."""
    count = len(COLOURS)
    taken = [method.colour for method in methods if method.colour is not None]
    free = [index for index in range(count) if index not in taken]
    found: list[Look] = []
    rounds = [0] * count
    for method in methods:
        used = {look.colour for look in found}
        if method.colour is not None and method.colour not in used:
            colour = method.colour
        else:
            colour = free.pop(0) if free else min(range(count), key=lambda index: (rounds[index], index))
        found.append(Look(colour, (colour + rounds[colour]) % len(DASHES)))
        rounds[colour] += 1
    return found
