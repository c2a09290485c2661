"""`metrics.jsonl`: a line per iteration. `echelon.logging.metrics` writes it."""

import math
from pathlib import Path

from echelon.runs.folder import RunFolder
from echelon.runs.json_lines import read_lines


def read_metrics(folder: RunFolder | Path) -> list[dict[str, float]]:
    """All lines of a run, in order, without a last line that a kill cut short; other damaged lines give a warning."""
    path = folder.metrics if isinstance(folder, RunFolder) else Path(folder) / "metrics.jsonl"
    lines = read_lines(path, warn=True)
    return [{name: math.nan if value is None else value for name, value in line.items()} for line in lines]
