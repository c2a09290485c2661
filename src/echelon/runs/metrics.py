"""Metrics of a run: `metrics.jsonl`, a line per iteration, and beside it TensorBoard and, if asked for, W&B.

Every line has `iteration`, the number of iterations done when it was written, so the first is 1. A value that is not
finite is written as null and read back as NaN.
"""

import json
import math
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from echelon.errors import UserError
from echelon.runs.durable import replace_durably
from echelon.runs.folder import RunFolder
from echelon.runs.tensor_board import TensorBoard


class MetricsWriter:
    """Appends to a run's metrics. Use it as a context manager, or call `close`."""

    def __init__(self, folder: RunFolder, completed: int = 0) -> None:
        """Go on after `completed` iterations: lines beyond are dropped, so that no iteration appears twice."""
        kept = [line for line in read_metrics(folder) if line["iteration"] <= completed]
        text = "".join(_line(metrics) for metrics in kept)
        if folder.metrics.exists() and folder.metrics.read_text(errors="replace") != text:
            replace_durably(folder.metrics, text.encode())
        self._path = folder.metrics
        self._file = folder.metrics.open("a")
        self._board = TensorBoard(folder.tensorboard, begin=_step(kept[-1]) + 1 if kept else 0)
        self._wandb = None
        if folder.config.wandb != "off":
            from echelon.runs.weights_and_biases import WeightsAndBiases

            self._wandb = WeightsAndBiases(folder)

    def write(self, metrics: Mapping[str, float]) -> None:
        """One iteration."""
        try:
            self._file.write(_line(metrics))
            self._file.flush()
        except OSError as error:
            raise UserError(f"{self._path} cannot be written: {error.strerror}; make room, then resume") from error
        self._board.write(metrics, _step(metrics))
        if self._wandb:
            self._wandb.write(metrics)

    def close(self) -> None:
        """Write what is still held back."""
        self._file.close()
        self._board.close()
        if self._wandb:
            self._wandb.close()

    def __enter__(self) -> "MetricsWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_metrics(folder: RunFolder | Path) -> list[dict[str, float]]:
    """All lines of a run, in order. A last line that a kill cut short is left out; other unreadable ones are named."""
    path = folder.metrics if isinstance(folder, RunFolder) else Path(folder) / "metrics.jsonl"
    if not path.exists():
        return []
    text = path.read_text(errors="replace")
    lines = text.split("\n")
    found: list[dict[str, float]] = []
    for number, line in enumerate(lines, start=1):
        metrics = _parsed(line)
        if metrics is not None:
            found.append(metrics)
        elif line.strip() and number < len(lines):
            warnings.warn(f"line {number} of {path} is damaged and was skipped", UserWarning, stacklevel=2)
    return found


def _parsed(line: str) -> dict[str, float] | None:
    """A line's metrics, or None when it is not a whole one."""
    try:
        data: Any = json.loads(line)
    except ValueError:
        return None
    if not isinstance(data, dict) or not isinstance(data.get("iteration"), int):
        return None
    return {name: math.nan if value is None else value for name, value in data.items()}


def _line(metrics: Mapping[str, float]) -> str:
    """One line of the file."""
    return json.dumps({name: _plain(value) for name, value in metrics.items()}, allow_nan=False) + "\n"


def _plain(value: float) -> float | None:
    """JSON has no NaN and no infinity. Zero-dimensional tensors and NumPy numbers become Python's."""
    number = value if isinstance(value, int) else float(value)
    return number if math.isfinite(number) else None


def _step(metrics: Mapping[str, float]) -> int:
    """Where a line stands on TensorBoard's horizontal axis."""
    return int(metrics.get("env_steps", metrics["iteration"]))
