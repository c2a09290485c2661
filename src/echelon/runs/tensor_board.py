"""A run's metrics for TensorBoard. The horizontal axis is `env_steps`, on which different runs compare."""

import math
import os
import re
import socket
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from echelon.runs.durable import writing

_TIME = re.compile(r"tfevents\.(\d+\.\d+)\.")


class TensorBoard:
    """Writes an iteration as one event; an event per metric takes ten times as long, while the GPU waits.

    A thread writes, because TensorBoard's checksums are slow. An error in it is raised at the next iteration or on
    closing; torch's own writer prints a traceback from its thread when the disk is full.
    """

    def __init__(self, folder: Path, begin: int) -> None:
        """TensorBoard hides what earlier files of the folder hold from step `begin` on."""
        # Slow to import, and only a run that trains needs it.
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._events: Any = event_pb2  # generated modules, whose classes no type checker knows
        self._summaries: Any = summary_pb2
        self._path = folder / f"events.out.tfevents.{_begin(folder):.6f}.{socket.gethostname()}.{os.getpid()}"
        with writing(self._path):
            folder.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("wb")
            self._records = RecordWriter(self._file)
            self._append(self._event(file_version="brain.Event:2"))
            start = self._events.SessionLog(status=self._events.SessionLog.START)
            self._append(self._event(step=begin, session_log=start))
        self._thread = ThreadPoolExecutor(max_workers=1)
        self._last: Future[None] | None = None

    def write(self, metrics: Mapping[str, float], step: int) -> None:
        """Append one iteration, without values that are not finite."""
        summary = self._summaries.Summary()
        for name, value in metrics.items():
            if math.isfinite(value):
                summary.value.add(tag=name, simple_value=float(value))
        with writing(self._path):
            self._wait()
        self._last = self._thread.submit(self._append, self._event(step=step, summary=summary))

    def close(self) -> None:
        """Wait until everything is written."""
        with writing(self._path), self._file, self._thread:
            self._wait()

    def _wait(self) -> None:
        """Wait until the previous iteration is written; it usually is."""
        if self._last:
            self._last.result()

    def _event(self, **fields: Any) -> Any:
        return self._events.Event(wall_time=time.time(), **fields)

    def _append(self, event: Any) -> None:
        self._records.write(event.SerializeToString())
        self._file.flush()


def _begin(folder: Path) -> float:
    """When the file begins, after all others: TensorBoard reads them in the order of their names, a run may be started
    twice within a second, and a clock may have been turned back."""
    times = [float(match[1]) for path in folder.glob("events.*") if (match := _TIME.search(path.name))]
    return max([time.time(), *(earlier + 1e-5 for earlier in times)])
