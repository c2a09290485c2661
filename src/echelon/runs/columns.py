"""Some columns of `metrics.jsonl` without parsing all of each line, which would take most of a report's time.

Lines of a run have one of a few layouts: the same names in the same order. The first line of a layout is parsed and
becomes a pattern that picks the wanted numbers out of the others. Lines that fit no pattern are parsed like everywhere
else, so that the same ones are found damaged.
"""

import json
import math
import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from echelon.runs.json_lines import parse_line, scan

Column = NDArray[np.float64]
Names = tuple[str, ...]
NUMBER = rb"-?+\d++(?:\.\d++)?+(?:e[-+]?+\d++)?+|null"
MAX_PATTERNS = 12
"""Trying more of them would take longer than parsing."""


def line_columns(path: Path, wanted: Callable[[str], object]) -> dict[str, Column]:
    """`iteration` and the wanted metrics as an array `[lines]` each; NaN where a line has none, or no number. Damaged
    lines give a warning and are left out."""
    patterns: list[tuple[Names, re.Pattern[bytes]]] = []

    def cells(raw: bytes) -> tuple[Names, tuple[Any, ...]] | None:
        """The wanted names of a line and their numbers, those of a known layout as text."""
        for place, (names, pattern) in enumerate(patterns):
            if match := pattern.fullmatch(raw):
                if place:  # the next line most likely has the same layout
                    patterns.insert(0, patterns.pop(place))
                return names, match.groups()
        line = parse_line(raw)
        if line is None:
            return None
        names = tuple(name for name in line if name == "iteration" or wanted(name))
        if len(patterns) < MAX_PATTERNS:
            patterns.append((names, _pattern(list(line), names)))
        return names, tuple(line[name] for name in names)

    count = 0
    groups: dict[Names, tuple[list[int], list[tuple[Any, ...]]]] = defaultdict(lambda: ([], []))
    for _, found in scan(path, warn=True, parse=cells):
        if found is not None:
            places, rows = groups[found[0]]
            places.append(count)
            rows.append(found[1])
            count += 1
    columns: dict[str, Column] = {}
    for names, (places, rows) in groups.items():
        for name, column in zip(names, zip(*rows, strict=True), strict=True):
            columns.setdefault(name, np.full(count, np.nan))[places] = [_number(cell) for cell in column]
    return columns


def _pattern(names: list[str], wanted: Names) -> "re.Pattern[bytes]":
    """Fits lines with these names in this order and nothing but numbers; a group for each that is wanted."""
    parts = []
    for name in names:
        number = rb"\d{1,15}" if name == "iteration" else NUMBER
        parts.append(re.escape(json.dumps(name).encode()) + (b": (%s)" if name in wanted else b": (?:%s)") % number)
    return re.compile(rb"\{" + b", ".join(parts) + rb"\}\n")


def _number(value: Any) -> float:
    """A number, or the text of one, as float64; NaN for anything else."""
    if isinstance(value, bytes):
        return math.nan if value == b"null" else float(value)
    try:
        return float(value) if isinstance(value, int | float) else math.nan
    except OverflowError:  # an integer of hundreds of digits
        return math.nan
