"""How many runs fit on one GPU. What one takes is measured once for each kind of run, not guessed."""

import json
import math
from pathlib import Path

from echelon.grid.cells import Cell

MARGIN = 1.1
"""Memory reserved for a run, in parts of what was measured: an evaluation or a curriculum may want a little more."""
USABLE = 0.95
"""Part of a GPU's memory that runs may fill."""


def memory_file(cell: Cell, logs: Path) -> Path:
    """Where it is written what a run of this kind takes of a GPU; seeds take the same."""
    return logs / f"{cell.config.task}-{cell.config.method}-{cell.config.num_envs}.memory.json"


def runs_per_gpu(needed: int, total: int, most: int) -> int:
    """Runs that need so many bytes each on a GPU of `total`, at least one and not more than `most`."""
    return max(1, min(most, math.floor(USABLE * total / (MARGIN * needed)))) if needed else 1


def measured_runs_per_gpu(cell: Cell, logs: Path, most: int) -> int | None:
    """The same for a cell, by the file that measured its kind; None if there is none."""
    try:
        found = json.loads(memory_file(cell, logs).read_text())
        return runs_per_gpu(found["bytes"], found["total"], most)
    except (OSError, ValueError, KeyError, TypeError):
        return None
