"""The log files of a run: metrics, KL matrices, takeovers, faults. Rank 0 writes for all ranks."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any

from echelon.logging.metrics import MetricsWriter
from echelon.logging.trouble import TroubleWatch
from echelon.runs.distances import DistanceWriter
from echelon.runs.faults import keep_faults, with_policies
from echelon.runs.folder import RunFolder
from echelon.runs.genealogy import GenealogyWriter
from echelon.runs.json_lines import LineWriter
from echelon.training.trainer import Iteration, Trainer


class NoRecord:
    """Writes nothing: for ranks other than rank 0."""

    files: Sequence[LineWriter] = ()
    """Files to sync before a checkpoint is written."""

    def __enter__(self) -> "NoRecord":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def write_metrics(self, metrics: Mapping[str, float]) -> None:
        """Write the metrics of an iteration."""

    def write_events(self, result: Iteration, env_steps: int) -> None:
        """Write an iteration's KL matrix and takeovers, if it has any."""

    def warn(self, metrics: Mapping[str, float], last: bool) -> None:
        """Warn the user if the metrics show a problem (`TroubleWatch`)."""

    def write_faults(self, iteration: int, faults: Sequence[dict[str, Any]]) -> None:
        """Write simulations that went wrong."""


class Record(NoRecord):
    """Appends to the run's files. On resume, lines after the checkpoint's iteration are dropped first."""

    def __init__(self, trainer: Trainer, folder: RunFolder, say: Callable[[str], None]) -> None:
        self._folder, self._trainer = folder, trainer
        self._open = ExitStack()
        self._log = self._open.enter_context(MetricsWriter(folder, trainer.iteration))
        if self._log.gap:
            say(f"WARNING: {self._log.gap}")
        self._distances = DistanceWriter(folder, trainer.iteration)
        self._genealogy = GenealogyWriter(folder, trainer.iteration)
        if trainer.selection is not None and trainer.iteration == 0:
            self._genealogy.begin(trainer.selection.start())
        self._trouble = TroubleWatch(trainer.config, say)
        self.files = (self._log.lines, self._distances, self._genealogy)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.__exit__(kind, error, trace)

    def write_metrics(self, metrics: Mapping[str, float]) -> None:
        self._log.write(metrics)

    def write_events(self, result: Iteration, env_steps: int) -> None:
        iteration = self._trainer.iteration
        if result.kl_matrix is not None:
            self._distances.write(iteration, env_steps, result.kl_matrix)
        if result.takeovers:
            for one in result.takeovers:
                if math.isnan(one.objective):
                    self._trouble.tell_of_broken(iteration, one.member, one.donor)
            takeovers = [dataclasses.asdict(takeover) for takeover in result.takeovers]
            self._genealogy.write(iteration, env_steps, takeovers)

    def warn(self, metrics: Mapping[str, float], last: bool) -> None:
        self._trouble.look(metrics, last)

    def write_faults(self, iteration: int, faults: Sequence[dict[str, Any]]) -> None:
        if faults:
            keep_faults(self._folder, iteration, faults)


def record_faults(trainer: Trainer, metrics: Mapping[str, float], record: NoRecord) -> None:
    """Write simulations that went wrong in an iteration, of all ranks, each with the policy that drove it."""
    if metrics.get("env/quarantined", 0.0) <= 0:
        return
    take_faults = getattr(trainer.env, "take_faults", list)
    found = with_policies(take_faults(), trainer.layout.policy_id.tolist())
    everywhere = [fault for rank in trainer.ranks.gather(found) for fault in rank]
    trainer.ranks.attempt(lambda: record.write_faults(trainer.iteration, everywhere))
