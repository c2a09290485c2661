"""A run's metrics for TensorBoard. The horizontal axis is `env_steps`, on which different runs compare."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class TensorBoard:
    """Writes an iteration as one event: an event for each metric takes ten times as long, and the GPU waits."""

    def __init__(self, folder: Path, begin: int) -> None:
        """What earlier files of the folder hold from step `begin` on is no longer shown."""
        # Slow to import, and only a run that trains needs it.
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from torch.utils.tensorboard import FileWriter

        events: Any = event_pb2  # generated: their classes are known only at run time
        self._summaries: Any = summary_pb2
        self._file = FileWriter(str(folder))
        self._file.add_event(events.Event(step=begin, session_log=events.SessionLog(status=events.SessionLog.START)))

    def write(self, metrics: Mapping[str, float], step: int) -> None:
        """Values that are not finite are left out."""
        summary = self._summaries.Summary()
        for name, value in metrics.items():
            if math.isfinite(value):
                summary.value.add(tag=name, simple_value=float(value))
        self._file.add_summary(summary, step)

    def close(self) -> None:
        """Write what is still held back."""
        self._file.close()
