"""Writes what a run logs: metrics, KL matrices and takeovers, as files, to TensorBoard and, if asked for, to W&B.

Every line has `iteration`, the number of iterations done when it was written, so the first is 1. A value that is not
finite is written as null and read back as NaN.
"""

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from echelon.errors import UserError
from echelon.runs.folder import RunFolder
from echelon.runs.json_lines import LineWriter
from echelon.runs.metrics import DISTANCES, METRICS, stride
from echelon.runs.tensor_board import TensorBoard

GENEALOGY = "population/genealogy.jsonl"
"""Which member of a population copied which, and its hyperparameters afterwards."""


class RunWriter:
    """Appends to the log of a run. Use it as a context manager, or call `close`.

    Metrics are thinned in a long run (`echelon.runs.metrics`). A line that is written stays: nothing is rewritten.
    """

    def __init__(self, folder: RunFolder, completed: int = 0) -> None:
        """Continue after `completed` iterations: later lines are dropped, so that no iteration appears twice."""
        names = (METRICS, DISTANCES, GENEALOGY)
        self._files = {name: LineWriter(folder, name, completed, warn=name == METRICS) for name in names}
        self._left_out: Mapping[str, Any] | None = None
        self._files[METRICS].append([])  # fails now, not after the first iteration, if the file cannot be written
        last = self._files[METRICS].last
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
            from echelon.runs.weights_and_biases import WeightsAndBiases

            self._wandb = WeightsAndBiases(folder)

    def write(self, line: Mapping[str, float]) -> None:
        """Append the metrics of an iteration. One that is thinned out is kept until it is known not to be the last."""
        self._left_out, iteration = line, int(line["iteration"])
        if iteration % stride(iteration) == 0:
            self._write_left_out()
            self._board.write(line, _step(line))
        if self._wandb:
            self._wandb.write(line)

    def write_distances(self, iteration: int, env_steps: int, matrix: list[list[float]]) -> None:
        """Append a KL matrix. `matrix[i][j]` is the mean KL from policy i to policy j on states of policy i; the line
        also holds each policy's nearest."""
        nearest = [min((kl, j) for j, kl in enumerate(row) if j != i)[1] for i, row in enumerate(matrix)]
        line = {"iteration": iteration, "env_steps": env_steps, "kl": matrix, "nearest": nearest}
        self._files[DISTANCES].append([line])

    def write_takeovers(self, iteration: int, env_steps: int, takeovers: Sequence[Mapping[str, Any]]) -> None:
        """Append a line per takeover in a population; those of iteration 0 are the members' first hyperparameters."""
        lines = [{"iteration": iteration, "env_steps": env_steps} | dict(one) for one in takeovers]
        self._files[GENEALOGY].append(lines)

    def sync(self) -> None:
        """Wait until all lines are on the disk."""
        self._write_left_out()
        for file in self._files.values():
            file.sync()

    def close(self) -> None:
        """Flush what is still buffered."""
        try:
            self._write_left_out()
            for file in self._files.values():
                file.close()
            self._board.close()
        finally:
            if self._wandb:
                self._wandb.close()

    def _write_left_out(self) -> None:
        if self._left_out is not None:
            line, self._left_out = self._left_out, None  # one that could not be written is not tried again
            self._files[METRICS].append([line])

    def __enter__(self) -> "RunWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except UserError:
            if error is None:  # otherwise the first error is the more useful one
                raise


def _step(line: Mapping[str, float]) -> int:
    """The line's position on TensorBoard's horizontal axis."""
    return int(line.get("env_steps", line["iteration"]))
