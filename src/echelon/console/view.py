"""What a person sees while a run or a grid trains: a live panel on a terminal, a line every few seconds elsewhere."""

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TextIO

from rich import get_console
from rich.console import Console, RenderableType
from rich.live import Live

from echelon.config import TrainConfig
from echelon.console.progress import RunProgress
from echelon.runs.folder import RunFolder


class View:
    """Shows the progress of a run or a grid, with messages in between."""

    closed = False
    """Whether its output, a pipe or a terminal, is gone."""
    _clock: Callable[[], float] = time.monotonic
    _run: RunProgress | None = None

    def start(self, config: TrainConfig, folder: RunFolder, total_iterations: int, first_iteration: int) -> None:
        """Show a run that has done `first_iteration` of its iterations."""
        self._run = RunProgress(config, folder, total_iterations, first_iteration, self._clock)
        self.show(self._run.headline(), self._run.line, self._run.panel)

    def update(self, metrics: Mapping[str, float]) -> None:
        """Show the metrics of an iteration. Any may be missing or NaN."""
        if self._run is not None:
            first = not self._run.metrics
            self._run.update(metrics)
            self.tick(now=first or self._run.done >= self._run.total)

    def show(self, headline: str, line: Callable[[], str], panel: Callable[[], RenderableType]) -> None:
        """Show progress as a line or as a panel, until `stop`."""

    def tick(self, now: bool = False) -> None:
        """Update what is shown; `now` writes a line even if one was just written."""

    def message(self, text: str) -> None:
        """Print a message."""

    def stop(self) -> None:
        """Show the last state, and nothing after it. May be called more than once."""

    @contextlib.contextmanager
    def _output(self) -> Iterator[None]:
        """Note that the output is closed, and send standard output to /dev/null from then on; standard error too, if
        it was the same file."""
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

    def start(self, config: TrainConfig, folder: RunFolder, total_iterations: int, first_iteration: int) -> None: ...


class PlainView(View):
    """Lines of plain text, for logs: one for the first and last iteration, and one every few seconds between."""

    def __init__(
        self, out: TextIO | None = None, every: float = 5.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._out, self._every, self._clock = out, every, clock
        self._line: Callable[[], str] | None = None
        self._next, self._unsaid = 0.0, False

    def show(self, headline: str, line: Callable[[], str], panel: Callable[[], RenderableType]) -> None:
        self._line, self._next = line, self._clock() + self._every
        self.message(headline)

    def tick(self, now: bool = False) -> None:
        self._unsaid = self._line is not None
        if now or self._clock() >= self._next:
            self.stop()

    def message(self, text: str) -> None:
        with self._output():
            print(text, file=self._out or sys.stdout, flush=True)

    def stop(self) -> None:
        if self._unsaid and self._line is not None:
            self._unsaid, self._next = False, self._clock() + self._every
            self.message(self._line())


class LiveView(View):
    """A panel that is redrawn in place; messages scroll by above it."""

    _live: Live | None = None
    _silenced = False

    def show(self, headline: str, line: Callable[[], str], panel: Callable[[], RenderableType]) -> None:
        self._live, self._silenced = Live(get_renderable=panel, refresh_per_second=4), set_control_echo(False)
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
            self._silenced = self._silenced and not set_control_echo(True)


def set_control_echo(on: bool) -> bool:
    """Set whether the terminal echoes control keys, since a `^C` would shift the panel by a line; whether that changed
    anything. A background job leaves the terminal alone: the system would stop it."""
    try:
        import termios

        before = termios.tcgetattr(sys.stdin)
        if os.tcgetpgrp(sys.stdin.fileno()) != os.getpgrp() or bool(before[3] & termios.ECHOCTL) == on:
            return False
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, [*before[:3], before[3] ^ termios.ECHOCTL, *before[4:]])
    except Exception:  # Windows, no terminal, no standard input
        return False
    return True


def choose_view(every: float = 5.0) -> View:
    """A live panel where standard output is a terminal that can draw one, else lines."""
    console = Console()
    able = console.is_terminal and not console.is_dumb_terminal and console.encoding.lower().startswith("utf")
    return LiveView() if able else PlainView(every=every)


def default_view() -> View:
    """The view of `train` in Python: progress in a notebook or on a terminal, nothing elsewhere."""
    notebook = "ipykernel" in sys.modules
    return PlainView() if notebook else choose_view() if sys.stdout is not None and sys.stdout.isatty() else NullView()
