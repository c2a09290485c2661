"""`diagnostics/kl.jsonl`: the KL matrix over training, a line per measurement."""

from types import NoneType
from typing import Any

import numpy as np

from echelon.runs.folder import RunFolder
from echelon.runs.json_lines import read_lines

FILE = "diagnostics/kl.jsonl"


def read_distances(folder: RunFolder) -> list[dict[str, Any]]:
    """All measurements of a run, as they were written."""
    return read_lines(folder.path / FILE)


def read_matrices(folder: RunFolder) -> tuple[list[dict[str, Any]], int]:
    """All sound measurements of a run, matrices as arrays `[M, M]`, and the number of lines that are damaged."""
    found = [_measured(line, folder.config.num_policies) for line in read_distances(folder)]
    sound = [line for line in found if line is not None]
    return sound, len(found) - len(sound)


def _measured(line: dict[str, Any], policies: int) -> dict[str, Any] | None:
    """A line of `kl.jsonl` with its matrix as an array, NaN for null, which stands for a KL that is not finite; None if
    it holds no matrix of the run's size."""
    matrix, steps = line.get("kl"), line.get("env_steps")
    if not isinstance(steps, int) or not 0 <= steps < 2**53 or not isinstance(matrix, list) or len(matrix) != policies:
        return None
    if any(not isinstance(row, list) or len(row) != policies for row in matrix):
        return None
    if not {type(x) for row in matrix for x in row} <= {int, float, NoneType}:
        return None
    try:
        array = np.array(matrix, dtype=np.float64)
    except OverflowError:  # an integer of hundreds of digits
        return None
    return None if np.isinf(array).any() else line | {"kl": array}
