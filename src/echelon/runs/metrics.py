"""The metrics of a run: `metrics.jsonl`, a line per iteration, and in a long run `metrics/` for the older ones.

`echelon.logging.metrics` writes them, to TensorBoard too.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from echelon.runs.archive import (
    archived_columns,
    archived_line,
    drop_archived_after,
    last_archived,
    read_archives,
    write_archive,
)
from echelon.runs.columns import Column, line_columns
from echelon.runs.durable import replace_durably, writing
from echelon.runs.folder import RunFolder
from echelon.runs.json_lines import LineWriter, read_lines, scan

FILE, ARCHIVE = "metrics.jsonl", "metrics"
LIVE_BYTES = 8_000_000
"""Size of `metrics.jsonl` from which on its older half moves to the archive."""


class MetricsLines(LineWriter):
    """Appends lines. A kill at any moment loses none: what moves to the archive is there before it is dropped here."""

    def __init__(self, folder: RunFolder, completed: int) -> None:
        self._archive = folder.path / ARCHIVE
        drop_archived_after(self._archive, completed)
        super().__init__(folder, FILE, completed, warn=True)
        self.last = self.last or last_archived(self._archive)
        self.append([])  # fails now, not after the first iteration, if the file cannot be written

    def append(self, lines: Iterable[Mapping[str, Any]]) -> None:
        super().append(lines)
        assert self._file is not None
        if self._file.tell() > LIVE_BYTES:
            self._archive_older()

    def _archive_older(self) -> None:
        """Move all but the newest lines to the archive."""
        archived = last_archived(self._archive)
        begin = archived["iteration"] if archived else 0  # a kill may have left lines that are archived
        left, block, block_bytes, rest = self.path.stat().st_size, [], 0, []
        for raw, line in scan(self.path):
            if left <= LIVE_BYTES // 2:
                rest.append(raw)
                continue
            left -= len(raw)
            if line is not None and line["iteration"] > begin:
                block.append(line)
                block_bytes += len(raw)
            if block and (block_bytes >= LIVE_BYTES or left <= LIVE_BYTES // 2):
                write_archive(self._archive, block)
                block, block_bytes = [], 0
        self.close()
        with writing(self.path):
            replace_durably(self.path, b"".join(rest))
        super().append([])


def read_metrics(folder: RunFolder | str | Path) -> list[dict[str, float]]:
    """All lines of a run, in order, without a last line that a kill cut short; what else is damaged gives a warning."""
    path = folder.path if isinstance(folder, RunFolder) else Path(folder)
    live = read_lines(path / FILE, warn=True)  # first: what moves to the archive meanwhile is then there twice
    lines = [archived_line(names, row) for names, rows in read_archives(path / ARCHIVE) for row in rows]
    begin = lines[-1]["iteration"] if lines else 0
    live = [line for line in live if line["iteration"] > begin]
    return lines + [{name: math.nan if value is None else value for name, value in line.items()} for line in live]


def read_columns(folder: RunFolder | Path, wanted: Callable[[str], object]) -> dict[str, Column]:
    """`iteration` and the wanted metrics as an array `[lines]` each; NaN where a line has none, or no number.

    Of a long run this takes a tenth of the time and memory that all of its lines do.
    """
    path = folder.path if isinstance(folder, RunFolder) else Path(folder)
    live = line_columns(path / FILE, wanted)
    parts = []
    for names, rows in read_archives(path / ARCHIVE):
        found = archived_columns(names, rows, lambda name: name == "iteration" or wanted(name))
        parts.append({name: np.array(values) for name, values in found.items()})
    begin = parts[-1]["iteration"][-1] if parts else 0
    if live:
        parts.append({name: column[live["iteration"] > begin] for name, column in live.items()})
    names = dict.fromkeys(name for part in parts for name in part)
    missing = [np.full(len(part["iteration"]), np.nan) for part in parts]
    return {
        name: np.concatenate([part.get(name, gap) for part, gap in zip(parts, missing, strict=True)]) for name in names
    }
