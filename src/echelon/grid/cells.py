"""The cells of a grid. What is done is read from the disk, so that nothing but the run folders has to survive."""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from echelon.config import TrainConfig

LAST_LINE_BYTES = 1 << 16
"""Bytes at the end of `metrics.jsonl` that surely hold its last line."""


@dataclass(frozen=True)
class Cell:
    """One run of a grid."""

    name: str
    """Unique in the grid; names its files in the folder of logs."""
    config: TrainConfig
    """Complete, with `out` set."""

    @property
    def path(self) -> Path:
        """The run folder."""
        assert self.config.out, f"the cell {self.name} has no run folder: set config.out"
        return Path(self.config.out)

    @property
    def done(self) -> bool:
        """Whether the state after the last iteration is saved: only then is there nothing left to do."""
        checkpoints = self.path / "checkpoints"
        names = [entry.name for entry in checkpoints.iterdir()] if checkpoints.is_dir() else []
        return any(name.isdigit() and int(name) >= self.config.num_iterations for name in names)

    def newest(self) -> dict[str, Any]:
        """The last whole line of its metrics, empty before there is one."""
        try:
            with (self.path / "metrics.jsonl").open("rb") as file:
                file.seek(max(0, file.seek(0, 2) - LAST_LINE_BYTES))
                lines = file.read().splitlines()
        except OSError:
            return {}
        for line in reversed(lines):
            try:
                metrics = json.loads(line)
            except ValueError:
                continue
            if isinstance(metrics, dict):
                return metrics
        return {}


def pace(cell: Cell) -> float:
    """Seconds the whole cell takes, by its metrics so far; NaN before there are any."""
    newest = cell.newest()
    seconds, iteration = newest.get("wall_s"), newest.get("iteration")
    if not seconds or not iteration:
        return math.nan
    return seconds / iteration * cell.config.num_iterations


def expected_seconds(cell: Cell, known: Iterable[tuple[Cell, float]]) -> float:
    """What a cell will take, by the likest of those whose time is known: same task and method, same task, any."""
    timed = [(other.config, seconds) for other, seconds in known if math.isfinite(seconds)]
    config = cell.config
    alike = [
        [seconds for other, seconds in timed if (other.task, other.method) == (config.task, config.method)],
        [seconds for other, seconds in timed if other.task == config.task],
        [seconds for _, seconds in timed],
    ]
    best = next((seconds for seconds in alike if seconds), [])
    return sum(best) / len(best) if best else math.nan
