"""Metrics of a run: `metrics.jsonl`, a line per iteration, and beside it TensorBoard and, if asked for, W&B.

Every line has `iteration`, the number of iterations done when it was written, so the first is 1. A value that is not
finite is written as null and read back as NaN.
"""

import math
from collections.abc import Mapping
from types import TracebackType

from echelon.errors import UserError
from echelon.logging.tensor_board import TensorBoard
from echelon.runs.folder import RunFolder
from echelon.runs.json_lines import append_lines, drop_lines_after


class MetricsWriter:
    """Appends to a run's metrics. Use it as a context manager, or call `close`."""

    def __init__(self, folder: RunFolder, completed: int = 0) -> None:
        """Continue after `completed` iterations: later lines are dropped, so that no iteration appears twice."""
        self._path = folder.metrics
        kept = drop_lines_after(self._path, completed, warn=True)
        append_lines(self._path, [])  # fails now, not after the first iteration, if the file cannot be written
        self._board = TensorBoard(folder.tensorboard, begin=_step(kept[-1]) + 1 if kept else 0)
        self._wandb = None
        if folder.config.wandb != "off":
            from echelon.logging.weights_and_biases import WeightsAndBiases

            self._wandb = WeightsAndBiases(folder)

    def write(self, metrics: Mapping[str, float]) -> None:
        """Append one iteration."""
        append_lines(self._path, [{name: _plain(value) for name, value in metrics.items()}])
        self._board.write(metrics, _step(metrics))
        if self._wandb:
            self._wandb.write(metrics)

    def close(self) -> None:
        """Flush what is still buffered."""
        try:
            self._board.close()
        finally:
            if self._wandb:
                self._wandb.close()

    def __enter__(self) -> "MetricsWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except UserError:
            if error is None:  # otherwise the first error is the more useful one
                raise


def _plain(value: float) -> float | None:
    """A Python number from a tensor or NumPy scalar; None for NaN and infinity, which JSON lacks."""
    number = value if isinstance(value, int) else float(value)
    return number if math.isfinite(number) else None


def _step(metrics: Mapping[str, float]) -> int:
    """The line's position on TensorBoard's horizontal axis."""
    return int(metrics.get("env_steps", metrics["iteration"]))
