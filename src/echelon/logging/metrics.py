"""Metrics of a run: `metrics.jsonl`, and beside it TensorBoard and, if asked for, W&B.

Every line has `iteration`, the number of iterations done when it was written, so the first is 1. A value that is not
finite is written as null and read back as NaN.
"""

from collections.abc import Mapping
from types import TracebackType

from echelon.errors import UserError
from echelon.logging.tensor_board import TensorBoard
from echelon.runs.folder import RunFolder
from echelon.runs.metrics import MetricsLines


class MetricsWriter:
    """Appends to a run's metrics. Use it as a context manager, or call `close`."""

    def __init__(self, folder: RunFolder, completed: int = 0) -> None:
        """Continue after `completed` iterations: later lines are dropped, so that no iteration appears twice."""
        self.lines = MetricsLines(folder, completed)
        last = self.lines.last
        logged = last["iteration"] if last else 0
        self.gap = (
            f"metrics.jsonl lacks iterations {logged + 1} to {completed}: the curves of this run have a gap there"
            if logged < completed
            else None
        )
        """A warning if iterations before the checkpoint are missing in the file."""
        self._board = TensorBoard(folder.tensorboard, begin=_step(last) + 1 if last else 0)
        self._wandb = None
        if folder.config.wandb != "off":
            from echelon.logging.weights_and_biases import WeightsAndBiases

            self._wandb = WeightsAndBiases(folder)

    def write(self, metrics: Mapping[str, float]) -> None:
        """Append one iteration."""
        self.lines.write(metrics)
        self._board.write(metrics, int(metrics["iteration"]), _step(metrics))
        if self._wandb:
            self._wandb.write(metrics)

    def close(self) -> None:
        """Flush what is still buffered."""
        self.lines.close()
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


def _step(metrics: Mapping[str, float]) -> int:
    """The line's position on TensorBoard's horizontal axis."""
    return int(metrics.get("env_steps", metrics["iteration"]))
