"""What a person sees while a run or a grid trains: a live panel on a terminal, a line every few seconds elsewhere; and
the signals that end it between two iterations, so that it is saved."""

import contextlib
import math
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any, Protocol, TextIO

from rich import get_console
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from echelon.config import TrainConfig
from echelon.console.wording import count, duration, figure, listed, sparkline
from echelon.runs.folder import RunFolder
from echelon.runs.metrics import read_columns
from echelon.runs.untrusted import Unreadable

PACE_ITERATIONS = 30
"""Iterations the time left is estimated from: enough to be steady, few enough to forget the slow first ones."""
REQUEUE = [getattr(signal, name) for name in ("SIGTERM", "SIGUSR1") if hasattr(signal, name)]
"""Signals that a cluster sends before it takes a machine away."""
SIGNALS = [*REQUEUE, *(getattr(signal, name) for name in ("SIGINT", "SIGHUP") if hasattr(signal, name))]


class Preempted(KeyboardInterrupt):
    """The machine's scheduler, not the user, asked the run to end: it should be started again elsewhere."""


class Interrupt:
    """While entered, the first of the signals sets `asked`, and `requeue` if a cluster sent it. A second SIGINT
    interrupts at once, as usual, and any further one is ignored."""

    def __init__(self) -> None:
        self.asked = self.requeue = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Interrupt":
        if threading.current_thread() is threading.main_thread():  # elsewhere Python delivers no signals
            heard = [number for number in SIGNALS if not _is_nohup(number)]
            self._before = {number: signal.signal(number, self._handle) for number in heard}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.asked and number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # until exit: the run is already ending
            raise KeyboardInterrupt
        if not self.asked:
            self.requeue = number in REQUEUE
        self.asked = True


def _is_nohup(number: int) -> bool:
    """Whether this is the hang-up of a terminal that nohup told the process to outlive."""
    return signal.Signals(number).name == "SIGHUP" and signal.getsignal(number) is signal.SIG_IGN


class Progress(Protocol):
    """How far a run or a grid is."""

    def headline(self) -> str: ...
    def line(self) -> str: ...
    def panel(self) -> RenderableType: ...


class RunProgress:
    """The newest metrics of a run, any of which may be missing or NaN, and its returns so far."""

    def __init__(self, config: TrainConfig, folder: RunFolder, total: int, done: int) -> None:
        self.config, self.folder, self.total, self.done = config, folder, total, done
        self.metrics: Mapping[str, float] = {}
        self.returns: list[float] = []
        if done:
            with contextlib.suppress(OSError, Unreadable):  # the writer of the file reports it
                self.returns += map(float, read_columns(folder.path, "return/leader".__eq__).get("return/leader", ()))
        self._first = done
        self._marks = deque([(time.monotonic(), done)], maxlen=PACE_ITERATIONS)

    def update(self, metrics: Mapping[str, float]) -> None:
        """Add one iteration."""
        if len(self._marks) == 2 and self._marks[0][1] == self._first:
            self._marks.popleft()  # the first iteration compiles kernels, so its time does not count
        self.metrics = dict(metrics)
        self.done = int(metrics.get("iteration", self.done + 1))
        self._marks.append((time.monotonic(), self.done))
        self.returns.append(self.get("return/leader"))

    def get(self, name: str) -> float:
        """The newest value of a metric, NaN if it was not logged."""
        return self.metrics.get(name, math.nan)

    @property
    def seconds_left(self) -> float:
        """Time left at the pace of the last iterations; NaN before there is one."""
        (start, before), (end, done) = self._marks[0], self._marks[-1]
        return (end - start) / (done - before) * max(0, self.total - done) if done > before else math.nan

    def headline(self) -> str:
        """Name the task, the method and the run folder."""
        return f"{self._title(', ')}, iterations {self.done} to {self.total}, in {self.folder.path}"

    def _title(self, between: str) -> str:
        config, policies = self.config, self.config.num_policies
        sizes = f"{policies} {'policy' if policies == 1 else 'policies'}", f"{config.num_envs:,} environments"
        return between.join((config.task, config.method, *sizes, config.device))

    def line(self) -> str:
        """Say where the run stands, without figures that were not logged."""
        figures = {
            "left": duration(self.seconds_left),
            "steps": count(self.get("env_steps")),
            "steps/s": count(self.get("fps/total")),
            "return": figure(self.get("return/leader")),
            "successes": figure(self.get("successes/leader")),
            "KL": figure(self.get("kl/own")),
            "lr": figure(self.get("lr")),
        }
        return f"{self.done}/{self.total}  {self.done / max(1, self.total):4.0%}  {listed(figures)}"

    def panel(self) -> RenderableType:
        """Draw a bar and rows of figures."""
        bar = Table.grid(padding=(0, 1), expand=True)
        bar.add_column(ratio=1)
        bar.add_column(no_wrap=True)
        where = f"{self.done / max(1, self.total):.0%}  iteration {self.done:,}/{self.total:,}"
        where += f"  left {duration(self.seconds_left)}"
        bar.add_row(ProgressBar(total=max(1, self.total), completed=self.done), where)
        rows = Table.grid(padding=(0, 2))
        rows.add_column(style="cyan", no_wrap=True)
        for label, text in self._rows().items():
            if text:
                rows.add_row(label, Text(text))
        return Panel(
            Group(bar, "", rows),
            title=Text(self._title(" · "), style="bold"),
            title_align="left",
            subtitle=Text(str(self.folder.path), style="bright_black"),
            subtitle_align="left",
            border_style="bright_black",
        )

    def _rows(self) -> dict[str, str]:
        """Figures by label; empty where none was logged."""
        returns = f"{figure(self.get('return/leader')):<8} {sparkline(self.returns, 32)}"
        if followers := [value for name, value in self._under("return/policy_").items() if name != "0"]:
            returns += f"  followers {figure(min(followers))} to {figure(max(followers))}"
        learning = {"rate": "lr", "clipped": "clip_fraction/own", "gradient": "grad_norm"}
        learning |= {"entropy": "entropy/policy_0", "ESS": "ess"}
        seconds = {name: value for name, value in self._under("time/").items() if "/" not in name}
        total = sum(seconds.values())
        times = {name: f"{value / total:.0%}" for name, value in seconds.items() if value >= 0.005 * total > 0}
        return {
            "return": returns,
            "successes": listed({"": figure(self.get("successes/leader"))}),
            "env steps": listed({"": count(self.get("env_steps"))}),
            "steps/s": listed({name.replace("total", ""): count(x) for name, x in self._under("fps/").items()}),
            "learning": listed({name: figure(self.get(metric)) for name, metric in learning.items()}),
            "KL": listed({name.replace("_", " "): figure(x) for name, x in self._under("kl/").items()}),
            "time": f"{listed(times)}  of {total:.2f} s" if total > 0 else "",
        }

    def _under(self, prefix: str) -> dict[str, float]:
        """Finite metrics that start with `prefix`, by the rest of their names."""
        found = {name.removeprefix(prefix): value for name, value in self.metrics.items() if name.startswith(prefix)}
        return {name: value for name, value in found.items() if math.isfinite(value)}


class View:
    """Shows the progress of a run or a grid, with messages in between."""

    closed = False
    """Whether its output, a pipe or a terminal, is gone."""
    _run: RunProgress | None = None

    def start(self, config: TrainConfig, folder: RunFolder, total_iterations: int, first_iteration: int) -> None:
        """Show a run that has done `first_iteration` of its iterations."""
        self._run = RunProgress(config, folder, total_iterations, first_iteration)
        self.show(self._run)

    def update(self, metrics: Mapping[str, float]) -> None:
        """Show the metrics of an iteration. Any may be missing or NaN."""
        if self._run is not None:
            first = not self._run.metrics
            self._run.update(metrics)
            self.tick(now=first or self._run.done >= self._run.total)

    def show(self, progress: Progress) -> None:
        """Show progress as a line or as a panel, until `stop`."""

    def tick(self, now: bool = False) -> None:
        """Update what is shown; `now` writes a line even if one was just written."""

    def message(self, text: str) -> None:
        """Print a message."""

    def stop(self) -> None:
        """Show the last state, and nothing after it. May be called more than once."""

    @contextlib.contextmanager
    def _output(self) -> Iterator[None]:
        """Once the output is closed, send standard output, and standard error if it was the same file, to nowhere."""
        try:
            yield
        except OSError:
            self.closed = True
            nowhere = os.open(os.devnull, os.O_WRONLY)
            with contextlib.suppress(OSError, ValueError):
                if os.path.sameopenfile(sys.stdout.fileno(), sys.stderr.fileno()):
                    os.dup2(nowhere, sys.stderr.fileno())
                os.dup2(nowhere, sys.stdout.fileno())


class NullView(View):
    """Shows nothing."""


class PlainView(View):
    """Lines of plain text, for logs: one for the first and last iteration, and one every few seconds between."""

    def __init__(self, out: TextIO | None = None, every: float = 5.0) -> None:
        self._out, self._every = out, every
        self._shown: Progress | None = None
        self._next, self._unsaid = 0.0, False

    def show(self, progress: Progress) -> None:
        self._shown, self._next = progress, time.monotonic() + self._every
        self.message(progress.headline())

    def tick(self, now: bool = False) -> None:
        self._unsaid = self._shown is not None
        if now or time.monotonic() >= self._next:
            self.stop()

    def message(self, text: str) -> None:
        with self._output():
            print(text, file=self._out or sys.stdout, flush=True)

    def stop(self) -> None:
        if self._unsaid and self._shown is not None:
            self._unsaid, self._next = False, time.monotonic() + self._every
            self.message(self._shown.line())


class LiveView(View):
    """A panel that is redrawn in place; messages scroll by above it."""

    _live: Live | None = None

    def show(self, progress: Progress) -> None:
        self._live = Live(get_renderable=progress.panel, refresh_per_second=4)
        with self._output():
            self._live.start()

    def message(self, text: str) -> None:
        with self._output():
            get_console().print(text, markup=False, highlight=False, soft_wrap=self._live is None)

    def stop(self) -> None:
        if self._live is not None:
            live, self._live = self._live, None
            with self._output():
                live.stop()


def choose_view(every: float = 5.0) -> View:
    """A live panel where standard output is a terminal that can draw one, else lines."""
    console = Console()
    able = console.is_terminal and not console.is_dumb_terminal and console.encoding.lower().startswith("utf")
    return LiveView() if able else PlainView(every=every)
