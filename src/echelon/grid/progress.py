"""The progress of a grid, as a line of text and as a table."""

import math
import time
from collections.abc import Callable, Sequence

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from echelon.console.wording import count, duration, figure
from echelon.grid.jobs import Job

MARKS = {"done": "[green]✓[/]", "running": "[bold cyan]●[/]", "failed": "[red]✗[/]", "left": "[bright_black]·[/]"}
LEGEND = "  ".join(f"{mark} {name}" for name, mark in MARKS.items())


class GridProgress:
    """Which jobs are done, which run, which failed, and what is left."""

    def __init__(self, jobs: Sequence[Job], clock: Callable[[], float] = time.monotonic) -> None:
        self.jobs = jobs
        self.done = {job.name for job in jobs if job.done}
        self.running: dict[str, str] = {}
        """Machines by the names of running jobs; empty for this one."""
        self.failed: dict[str, str] = {}
        """Why, by the name of the job."""
        self._clock, self._began, self._steps_before = clock, clock(), self._steps_left()

    def state(self, job: Job) -> str:
        """One of the names of `MARKS`."""
        found = [name for name in ("done", "running", "failed") if job.name in getattr(self, name)]
        return found[0] if found else "left"

    def in_state(self, state: str) -> list[Job]:
        """The jobs in that state."""
        return [job for job in self.jobs if self.state(job) == state]

    def _steps_left(self) -> float:
        """Environment steps that are left to take."""
        left = [job for job in self.jobs if self.state(job) in ("running", "left")]
        return sum(
            (1 - trained_fraction(job)) * job.config.num_iterations * job.config.steps_per_iteration for job in left
        )

    @property
    def seconds_left(self) -> float:
        """Time until all jobs are done, at the rate of this grid so far; NaN before it has one."""
        left = self._steps_left()
        taken = self._steps_before - left
        return (self._clock() - self._began) * left / taken if taken > 0 else math.nan if left else 0.0

    def headline(self) -> str:
        """Count the jobs in every state."""
        failed = f", {len(self.in_state('failed'))} failed" if self.failed else ""
        nodes = {node for node in self.running.values() if node}
        where = f" on {len(nodes)} node{'s' if len(nodes) > 1 else ''}" if nodes else ""
        return (
            f"{len(self.done)} of {len(self.jobs)} done{failed}, {len(self.running)} running{where}, "
            f"{len(self.in_state('left'))} left, time left {duration(self.seconds_left)}"
        )

    def running_lines(self) -> list[str]:
        """Say where each running job stands."""
        lines = []
        for job in self.in_state("running"):
            newest, node = job.newest(), self.running[job.name]
            line = f"{job.name}{f' on {node}' if node else ''}: {trained_fraction(job):4.0%}"
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


def trained_fraction(job: Job) -> float:
    """How much of a job is trained, 0 to 1."""
    return min(1.0, job.newest().get("iteration", 0) / job.config.num_iterations)
