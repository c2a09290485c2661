"""A run's metrics in TensorBoard and in Weights & Biases. The horizontal axis of both is `env_steps`, on which runs
compare; values that are not finite are left out."""

import math
import os
import re
import socket
import time
import uuid
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from echelon.config import to_dict
from echelon.errors import UserError, first_line
from echelon.runs.durable import replace_durably, writing
from echelon.runs.folder import RunFolder


class TensorBoard:
    """Writes an iteration as one event; an event per metric takes ten times as long, while the GPU waits.

    A thread writes, because TensorBoard's checksums are slow. An error in it is raised at the next iteration or on
    closing; torch's own writer prints a traceback from its thread when the disk is full.
    """

    def __init__(self, folder: Path, last: Mapping[str, float] | None) -> None:
        """Continue after the line `last`: TensorBoard hides what earlier files of the folder hold beyond it."""
        # Slow to import, and only a run that trains needs them.
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._events: Any = event_pb2  # generated modules, whose classes no type checker knows
        self._summaries: Any = summary_pb2
        # TensorBoard reads files in the order of their names, so this one begins after all others: a run may be started
        # twice within a second, and a clock may have been turned back.
        found = (re.search(r"tfevents\.(\d+\.\d+)\.", path.name) for path in folder.glob("events.*"))
        begin = max([time.time(), *(float(earlier[1]) + 1e-5 for earlier in found if earlier)])
        self._path = folder / f"events.out.tfevents.{begin:.6f}.{socket.gethostname()}.{os.getpid()}"
        with writing(self._path):
            folder.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("wb")
            self._records = RecordWriter(self._file)
            self._append(file_version="brain.Event:2")
            start = self._events.SessionLog(status=self._events.SessionLog.START)
            self._append(step=_step(last) + 1 if last else 0, session_log=start)
        self._thread = ThreadPoolExecutor(max_workers=1)
        self._last: Future[None] | None = None

    def write(self, line: Mapping[str, float]) -> None:
        """Append one iteration."""
        summary = self._summaries.Summary()
        for name, value in line.items():
            if math.isfinite(value):
                summary.value.add(tag=name, simple_value=float(value))
        self._wait()
        self._last = self._thread.submit(self._append, step=_step(line), summary=summary)

    def close(self) -> None:
        """Wait until everything is written."""
        with writing(self._path), self._file, self._thread:
            self._wait()

    def _wait(self) -> None:
        """Wait until the previous iteration is written; it usually is."""
        if self._last:
            with writing(self._path):
                self._last.result()

    def _append(self, **fields: Any) -> None:
        event = self._events.Event(wall_time=time.time(), **fields)
        self._records.write(event.SerializeToString())
        self._file.flush()


def _step(line: Mapping[str, float]) -> int:
    """The line's position on TensorBoard's horizontal axis. One that was read may have anything as its steps."""
    steps = line.get("env_steps")
    return int(steps if isinstance(steps, int | float) and 0 <= steps < 2**53 else line["iteration"])


class WeightsAndBiases:
    """Sends metrics with `--wandb online` or `offline`. If the service fails, its curves end and training continues.

    One run folder is one run there: its id is kept in `wandb/id`, so a resumed run continues the same curves. Offline
    runs lie in `wandb/` until `wandb sync` sends them.
    """

    def __init__(self, folder: RunFolder) -> None:
        import wandb

        config, stored_id = folder.config, folder.path / "wandb" / "id"
        with writing(stored_id):
            if not stored_id.exists():
                stored_id.parent.mkdir(exist_ok=True)
                replace_durably(stored_id, uuid.uuid4().hex[:12].encode())
        try:
            run = wandb.init(
                project="echelon",
                name=folder.name,
                id=stored_id.read_text().strip(),
                resume="allow",
                reinit="create_new",  # seeds that train side by side are a run each
                dir=str(folder.path),
                mode=config.wandb,
                config=to_dict(config),
                tags=[config.task, config.algo],
                settings=wandb.Settings(silent=True, console="off", disable_git=True),
            )
        except Exception as error:  # wandb raises many types of its own
            told = f"Weights & Biases does not start ({first_line(error)})"
            raise UserError(f"{told}; log in with wandb login, or use --wandb offline") from None
        run.define_metric("env_steps")
        run.define_metric("*", step_metric="env_steps")
        self._run: Any = run

    def write(self, line: Mapping[str, float]) -> None:
        """Append one iteration."""
        self._attempt(lambda run: run.log({name: x for name, x in line.items() if math.isfinite(x)}))

    def film(self, path: Path, env_steps: int) -> None:
        """Add a film, or a page in 3D."""
        import wandb

        shown = partial(wandb.Video, format="mp4") if path.suffix == ".mp4" else wandb.Html
        self._attempt(lambda run: run.log({"film": shown(str(path)), "env_steps": env_steps}))

    def close(self) -> None:
        """Wait until everything is stored or sent."""
        self._attempt(lambda run: run.finish())

    def _attempt(self, act: Callable[[Any], object]) -> None:
        try:
            if self._run is not None:
                act(self._run)
        except Exception as error:  # training continues without the service
            self._run = None
            warnings.warn(f"Weights & Biases is left out from here on: {error}", UserWarning, stacklevel=3)
