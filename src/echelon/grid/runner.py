"""Train the jobs of a grid, and show how far they are; what is done is not done again."""

import math
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from echelon.console.view import View, choose_view
from echelon.console.wording import count, duration, figure
from echelon.errors import UserError, first_line
from echelon.grid.jobs import Job
from echelon.grid.local import LOCKED, POLL_S, LocalPool, default_workers
from echelon.runs.durable import writing

if TYPE_CHECKING:
    from echelon.grid.cluster import RayCluster

LINE_EVERY_S = 30.0
"""Seconds between lines in a log."""
PATIENCE_S = 60.0
"""Seconds without a running job after which the user is told."""
MARKS = {"done": "[green]✓[/]", "running": "[bold cyan]●[/]", "failed": "[red]✗[/]", "left": "[bright_black]·[/]"}
Finished = Callable[[Job], object]
More = Callable[["Grid"], Sequence[Job]]
LEGEND = "  ".join(f"{mark} {name}" for name, mark in MARKS.items())


def run(
    jobs: Sequence[Job],
    logs: Path,
    *,
    workers: int | None = None,
    cluster: "RayCluster | None" = None,
    view: View | None = None,
    finished: Finished = lambda job: None,
    more: More = lambda grid: (),
    total: int = 0,
) -> dict[str, str]:
    """Train every job that is not done yet, `workers` at a time (default: one per GPU, or per two cores), or all
    that fit into `cluster`; return why jobs failed, by their names.

    `logs` is a folder for what each job prints. `finished` is called with every job that is done, those of an earlier
    call first. `more` is asked for further jobs again and again, up to `total` in all. A job that fails is reported and
    the others continue. On an interrupt the running jobs save their state and end; the same call resumes them.
    """
    with writing(logs, "choose another folder"):
        logs.mkdir(parents=True, exist_ok=True)
        state = Path(tempfile.mkdtemp(prefix=".grid-", dir=logs))
    grid, view = Grid(jobs, total=total), view or choose_view(LINE_EVERY_S)
    left = grid.in_state("left")
    workers = workers or default_workers(left[0].config.device if left else "cpu")
    pool = cluster or LocalPool(min(workers, len(left) + grid.to_come or 1))
    view.show(grid)
    try:
        for job in grid.in_state("done"):
            finished(job)
        with writing(logs):
            grid.train(pool, state, view, finished, more)
    except KeyboardInterrupt:
        view.message("stopping: runs save their state, and the same command resumes them")
        raise
    finally:
        try:
            pool.stop()
        finally:
            view.tick()
            view.stop()
            shutil.rmtree(state, ignore_errors=True)
    return grid.failed


class Grid:
    """Jobs: which are done, which run, which failed, and what is left."""

    def __init__(self, jobs: Sequence[Job], clock: Callable[[], float] = time.monotonic, total: int = 0) -> None:
        self.jobs, self._total = [*jobs], total
        self.done = {job.name for job in jobs if job.done}
        self.running: dict[str, str] = {}
        """Machines by the names of running jobs; empty for this one."""
        self.failed: dict[str, str] = {}
        """Why, by the name of the job."""
        self._clock, self._began, self._steps_before = clock, clock(), self._steps_left()

    @property
    def to_come(self) -> int:
        """Jobs that are not known yet."""
        return max(0, self._total - len(self.jobs))

    def train(self, pool: "LocalPool | RayCluster", state: Path, view: View, finished: Finished, more: More) -> None:
        """Submit the jobs that are left, and `more`, and follow them until none is."""
        futures = {pool.submit(job, state): job for job in [*self.in_state("left"), *self._grow(more)]}
        locked: set[str] = set()
        patient_until = time.monotonic() + PATIENCE_S
        while futures:
            view.tick()
            if view.closed:
                raise KeyboardInterrupt
            ended, _ = wait(futures, POLL_S, FIRST_COMPLETED)
            for job in futures.values():
                self._follow(job, state / job.name, view)
            for future in ended:
                job = futures.pop(future)
                self.running.pop(job.name, None)
                (state / job.name).unlink(missing_ok=True)
                failure = _failure(future, job.log(state))
                if job.pruned or job.trained:
                    self.done.add(job.name)
                    finished(job)
                    score = f": evaluated return {figure(job.score())}" if job.evaluate else ""
                    said = f" is done{score if job.done else ', but not evaluated; see its log'}"
                    view.message(f"{job.name}{said if not job.pruned else f' was {job.pruned}'}")
                elif failure:
                    self.failed[job.name] = failure
                    view.message(f"{job.name} failed: {failure}")
                else:
                    if job.name not in locked:
                        view.message(f"{job.name} is being trained by another process; waiting for it")
                    locked.add(job.name)
                    futures[pool.submit(job, state)] = job
            futures |= {pool.submit(job, state): job for job in self._grow(more)}
            if self.running or locked:
                patient_until = time.monotonic() + PATIENCE_S
            elif futures and time.monotonic() > patient_until:
                patient_until = math.inf
                view.message("nothing runs: the cluster has no room for a run; see ray status")

    def _grow(self, more: More) -> Sequence[Job]:
        before, new = self._steps_left(), more(self)
        self.jobs += new
        self._steps_before += self._steps_left() - before
        return new

    def _follow(self, job: Job, node_file: Path, view: View) -> None:
        """Say that a job has started, or started again because it lost its machine."""
        before, node = self.running.get(job.name), node_file.read_text() if node_file.exists() else None
        if node is None or node == before:
            return
        if before is not None:
            view.message(f"{job.name} lost its node {before}")
        self.running[job.name] = node
        view.message(f"{job.name} {'resumes' if job.newest() else 'starts'}{f' on {node}' if node else ''}")

    def state(self, job: Job) -> str:
        """One of the names of `MARKS`."""
        return next((name for name in ("done", "running", "failed") if job.name in getattr(self, name)), "left")

    def in_state(self, *states: str) -> list[Job]:
        """The jobs in one of these states."""
        return [job for job in self.jobs if self.state(job) in states]

    def _steps_left(self) -> float:
        """Environment steps that are left to take."""
        each = ((_trained(job), job.config) for job in self.in_state("running", "left"))
        known = sum((1 - part) * config.num_iterations * config.steps_per_iteration for part, config in each)
        whole = sum(job.config.num_iterations * job.config.steps_per_iteration for job in self.jobs)
        return known + (whole / max(1, len(self.jobs)) or 1.0) * self.to_come

    def headline(self) -> str:
        """Count the jobs in every state, and say how long the rest takes at the rate so far."""
        failed = f", {len(self.in_state('failed'))} failed" if self.failed else ""
        nodes = len(set(self.running.values()) - {""})
        where = f" on {nodes} node{'s' if nodes > 1 else ''}" if nodes else ""
        steps = self._steps_left()
        taken = self._steps_before - steps
        seconds = (self._clock() - self._began) * steps / taken if taken > 0 else math.nan if steps else 0.0
        return (
            f"{len(self.done)} of {len(self.jobs) + self.to_come} done{failed}, {len(self.running)} running{where}, "
            f"{len(self.in_state('left')) + self.to_come} left, time left {duration(seconds)}"
        )

    def running_lines(self) -> list[str]:
        """Say where each running job stands."""
        lines = []
        for job in self.in_state("running"):
            newest, node = job.newest(), self.running[job.name]
            line = f"{job.name}{f' on {node}' if node else ''}: {_trained(job):4.0%}"
            if isinstance(newest.get("return/leader"), float):
                line += f"  return {figure(newest['return/leader'])}"
            if isinstance(newest.get("fps/total"), float):
                line += f"  {count(newest['fps/total'])} steps/s"
            lines.append(line)
        return lines

    def line(self) -> str:
        """Say everything in one line."""
        running = "; ".join(self.running_lines())
        return f"{running}  ({self.headline()})" if running else self.headline()

    def panel(self) -> RenderableType:
        """Draw a row per task, a column per method, a mark per seed; below them the running jobs."""
        methods = list(dict.fromkeys(job.config.method for job in self.jobs))
        table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="cyan")
        for heading in ("", *methods):
            table.add_column(heading, no_wrap=True)
        for task in dict.fromkeys(job.config.task for job in self.jobs):
            groups = [[j for j in self.jobs if (j.config.task, j.config.method) == (task, name)] for name in methods]
            table.add_row(task, *(" ".join(MARKS[self.state(job)] for job in group) for group in groups))
        running = [Text(line) for line in self.running_lines() or [""]]
        lines = [table, Text(), Text.from_markup(f"[bright_black]{LEGEND}[/]"), *running]
        title = Text(self.headline(), style="bold")
        return Panel(Group(*lines), title=title, title_align="left", border_style="bright_black")


def _trained(job: Job) -> float:
    """How much of a job is trained, 0 to 1."""
    return min(1.0, job.newest().get("iteration", 0) / job.config.num_iterations)


def _failure(future: "Future[int]", log: Path) -> str:
    """Why a job that is not trained failed; empty if another process trains it."""
    try:
        code = future.result()
    except Exception as error:  # from Ray, or on a node: the others continue, unless the node cannot train at all
        cause = getattr(error, "cause", None) or error
        if isinstance(cause, UserError):
            raise cause from None
        return f"{type(cause).__name__}: {first_line(cause)}"
    if code in (0, LOCKED):
        return "" if code else f"it ended before it was done; see {log}"
    how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    last_line = log.read_text(errors="replace").rstrip().rpartition("\n")[2].strip()
    return f"its process ended with {how}" + (f": {last_line}" if last_line else "")
