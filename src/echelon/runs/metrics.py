"""Read what `echelon.runs.writer` logged: `metrics.jsonl`, and the KL matrices in `diagnostics/kl.jsonl`.

Metrics are thinned in a long run so that the file stays small. Written are the first 1,024 iterations, then 256 of
every doubling, those that a checkpoint was saved after, and the last of every start.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from echelon.runs.folder import RunFolder
from echelon.runs.json_lines import read_lines

METRICS, DISTANCES = "metrics.jsonl", "diagnostics/kl.jsonl"
ALL_UNTIL, PER_DOUBLING = 1024, 256
Column = NDArray[np.float64]


def stride(iteration: int) -> int:
    """Iterations from one that is written to the next."""
    if iteration <= ALL_UNTIL:
        return 1
    doubling = 1 << (iteration - 1).bit_length() - 1  # the power of two below
    return doubling // PER_DOUBLING


def read_metrics(folder: RunFolder | str | Path) -> list[dict[str, float]]:
    """All lines of a run, in order, without a last one that a kill cut short; damaged lines give a warning."""
    path = folder.path if isinstance(folder, RunFolder) else Path(folder)
    lines = read_lines(path / METRICS, warn=True)
    return [{name: math.nan if value is None else value for name, value in line.items()} for line in lines]


def read_columns(folder: RunFolder | Path, wanted: Callable[[str], object]) -> dict[str, Column]:
    """`iteration` and the wanted metrics as an array `[lines]` each; NaN where a line has none, or no number."""
    lines = read_metrics(folder)
    names = [name for name in dict.fromkeys(n for line in lines for n in line) if name == "iteration" or wanted(name)]
    return {name: np.array([_number(line.get(name)) for line in lines]) for name in names}


def read_distances(folder: RunFolder) -> list[dict[str, Any]]:
    """All KL matrices of a run, as they were written."""
    return read_lines(folder.path / DISTANCES)


def read_matrices(folder: RunFolder) -> tuple[list[dict[str, Any]], int]:
    """All sound measurements of a run, matrices as arrays `[M, M]`, and the number of lines that are damaged.

    NaN stands for a KL that is not finite, which the file has as null.
    """
    lines, sound, policies = read_distances(folder), [], folder.config.num_policies
    for line in lines:
        try:
            if any(isinstance(number, str) for row in line["kl"] for number in row):  # which NumPy would read
                continue
            matrix, steps = np.array(line["kl"], np.float64), line["env_steps"]
        except (KeyError, TypeError, ValueError, OverflowError):  # text, rows of other lengths, hundreds of digits
            continue
        if (
            matrix.shape == (policies, policies)
            and not np.isinf(matrix).any()
            and type(steps) is int
            and 0 <= steps < 2**53
        ):
            sound.append(line | {"kl": matrix})
    return sound, len(lines) - len(sound)


def _number(value: Any) -> float:
    try:
        return float(value) if isinstance(value, int | float) else math.nan
    except OverflowError:  # an integer of hundreds of digits
        return math.nan
