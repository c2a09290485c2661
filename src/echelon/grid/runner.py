"""Train the jobs of a grid; what is done is not done again."""

import math
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from echelon.console.view import View, choose_view
from echelon.errors import UserError, first_line
from echelon.grid.jobs import Job
from echelon.grid.local import POLL_S, LocalPool, default_workers
from echelon.grid.process import Outcome
from echelon.grid.progress import GridProgress

if TYPE_CHECKING:
    from echelon.grid.cluster import RayCluster, RayPool

LINE_EVERY_S = 30.0
"""Seconds between lines in a log."""
PATIENCE_S = 60.0
"""Seconds without a running job after which the user is told."""


def run(
    jobs: Sequence[Job],
    logs: Path,
    *,
    workers: int | None = None,
    cluster: "RayCluster | None" = None,
    view: View | None = None,
    finished: Callable[[Job], str | None] = lambda job: None,
) -> dict[str, str]:
    """Train every job that is not done yet, `workers` at a time (default: one per GPU, or per two cores), or all
    that fit into `cluster`; return why jobs failed, by their names.

    `logs` is a folder for what each job prints. `finished` is called with every job that is done, those of an earlier
    call first; what it returns is printed beside the job's name. A job that fails is reported and the others continue.
    On an interrupt the running jobs save their state and end; the same call resumes them.
    """
    try:
        logs.mkdir(parents=True, exist_ok=True)
        state = Path(tempfile.mkdtemp(prefix=".grid-", dir=logs))
    except OSError as error:
        raise UserError(f"{logs} cannot be written: {error.strerror}; choose another folder") from None
    view = view or choose_view(LINE_EVERY_S)
    progress = GridProgress(jobs)
    left = progress.in_state("left")
    workers = workers or default_workers(left[0].config.device if left else "cpu")
    pool = cluster.pool(logs) if cluster else LocalPool(logs, min(workers, len(left) or 1))
    view.show(progress.headline(), progress.line, progress.panel)
    try:
        for job in progress.in_state("done"):
            finished(job)
        _Runner(progress, pool, view, finished, state).run(left)
    except KeyboardInterrupt:
        view.message("stopping: runs save their state")
        raise
    finally:
        try:
            pool.close()
        finally:
            view.tick()
            view.stop()
            shutil.rmtree(state, ignore_errors=True)
    return progress.failed


@dataclass
class _Runner:
    """Submits jobs to a pool and follows them."""

    progress: GridProgress
    pool: "LocalPool | RayPool"
    view: View
    finished: Callable[[Job], str | None]
    state: Path
    """A folder where running jobs leave a file that names their machine."""
    locked: set[str] = field(default_factory=set)
    """Jobs that were reported as trained by another process."""

    def run(self, jobs: Sequence[Job]) -> None:
        """Train the jobs until none is left."""
        futures = {self.pool.submit(job, self.state / job.name): job for job in jobs}
        patient_until = time.monotonic() + PATIENCE_S
        while futures:
            self.view.tick()
            if self.view.closed:
                raise KeyboardInterrupt
            ended, _ = wait(futures, POLL_S, FIRST_COMPLETED)
            for future in ended:
                job = futures.pop(future)
                self.follow(job)
                self.progress.running.pop(job.name, None)
                (self.state / job.name).unlink(missing_ok=True)
                if self.collect(job, future):
                    futures[self.pool.submit(job, self.state / job.name)] = job
            for job in futures.values():
                self.follow(job)
            if self.progress.running or self.locked:
                patient_until = time.monotonic() + PATIENCE_S
            elif futures and time.monotonic() > patient_until:
                patient_until = math.inf
                self.view.message("nothing runs: the cluster has no room for a run; see ray status")

    def follow(self, job: Job) -> None:
        """Say that a job has started, or started again because it lost its machine."""
        running, file = self.progress.running, self.state / job.name
        node = file.read_text() if file.exists() else None
        if node is None or node == running.get(job.name):
            return
        if job.name in running:
            self.view.message(f"{job.name} lost its node {running[job.name]}")
        running[job.name] = node
        what = "resumes" if job.newest() else "starts"
        self.view.message(f"{job.name} {what}{f' on {node}' if node else ''}")

    def collect(self, job: Job, future: "Future[Outcome]") -> bool:
        """Report how a job ended; whether to submit it again."""
        try:
            outcome = future.result()
        except Exception as error:  # from Ray, or on a node: the others continue
            cause = getattr(error, "cause", None) or error
            outcome = Outcome(f"{type(cause).__name__}: {first_line(cause)}")
        if outcome.unfit:
            raise UserError(outcome.unfit)
        if job.trained:  # `finished` can tell whether the evaluation failed
            self.progress.done.add(job.name)
            said = self.finished(job)
            self.view.message(f"{job.name} is done{f': {said}' if said else ''}")
        elif outcome.locked:
            if job.name not in self.locked:
                self.view.message(f"{job.name} is being trained by another process; waiting for it")
            self.locked.add(job.name)
            return True
        else:
            self.progress.failed[job.name] = outcome.failure
            self.view.message(f"{job.name} failed: {outcome.failure}")
        return False
