"""What a person sees while a run trains: a live table on a terminal, a line every few seconds elsewhere."""

import contextlib
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol, TextIO

from echelon.config import TrainConfig
from echelon.console.progress import Progress
from echelon.console.terminal import QuietTerminal
from echelon.console.wording import count, duration, figure, policies
from echelon.runs.folder import RunFolder

if TYPE_CHECKING:
    from rich.live import Live


class View(Protocol):
    """Shows the progress of a run. `stop` may be called more than once."""

    def start(self, config: TrainConfig, folder: RunFolder, total_iterations: int, first_iteration: int) -> None:
        """Training begins with `first_iteration` iterations already done of `total_iterations`."""
        ...

    def update(self, metrics: Mapping[str, float]) -> None:
        """An iteration is done. Any metric may be missing or NaN."""
        ...

    def message(self, text: str) -> None:
        """Something a person should read."""
        ...

    def stop(self) -> None:
        """Training ended, well or not."""
        ...


class NullView:
    """Shows nothing."""

    def start(self, config: TrainConfig, folder: RunFolder, total_iterations: int, first_iteration: int) -> None: ...

    def update(self, metrics: Mapping[str, float]) -> None: ...

    def message(self, text: str) -> None: ...

    def stop(self) -> None: ...


class Guarded:
    """Forwards to a view until its output, a pipe or a terminal, is closed. Then it is `gone`, and standard output goes
    to /dev/null; standard error too, if it was the same file."""

    def __init__(self, view: View) -> None:
        self._view, self.gone = view, False

    def start(self, config: TrainConfig, folder: RunFolder, total_iterations: int, first_iteration: int) -> None:
        self._attempt(lambda: self._view.start(config, folder, total_iterations, first_iteration))

    def update(self, metrics: Mapping[str, float]) -> None:
        self._attempt(lambda: self._view.update(metrics))

    def message(self, text: str) -> None:
        self._attempt(lambda: self._view.message(text))

    def stop(self) -> None:
        self._attempt(self._view.stop)

    def _attempt(self, show: Callable[[], None]) -> None:
        if self.gone:
            return
        try:
            show()
        except OSError:
            self.gone = True
            nowhere = os.open(os.devnull, os.O_WRONLY)
            with contextlib.suppress(OSError, ValueError):
                if os.path.sameopenfile(sys.stdout.fileno(), sys.stderr.fileno()):
                    os.dup2(nowhere, sys.stderr.fileno())
                os.dup2(nowhere, sys.stdout.fileno())


class PlainView:
    """Lines of plain text, for logs: one at the first and last iteration, and one every few seconds between."""

    def __init__(
        self, out: TextIO | None = None, every: float = 5.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._out = out
        self._every = every
        self._clock = clock
        self._next = 0.0
        self._progress: Progress | None = None
        self._unsaid = False

    def start(self, config: TrainConfig, folder: RunFolder, total_iterations: int, first_iteration: int) -> None:
        self._progress = Progress(config, folder, total_iterations, first_iteration, self._clock)
        whose = policies(config.num_policies)
        self.message(
            f"{config.task}, {config.method}, {whose}, {config.num_envs} environments, {config.device}, "
            f"iterations {first_iteration} to {total_iterations}, in {folder.path}"
        )
        self._next = self._clock()

    def update(self, metrics: Mapping[str, float]) -> None:
        if self._progress is None:
            return
        self._progress.update(metrics)
        self._unsaid = True
        if self._clock() >= self._next or self._progress.done >= self._progress.total:
            self._say()

    def message(self, text: str) -> None:
        print(text, file=self._out or sys.stdout, flush=True)

    def stop(self) -> None:
        if self._unsaid:
            self._say()

    def _say(self) -> None:
        """One line of where the run stands; figures that were not logged are left out."""
        assert self._progress is not None
        progress, self._unsaid = self._progress, False
        self._next = self._clock() + self._every
        parts = [
            f"{progress.done}/{progress.total}",
            f"{progress.share:4.0%}",
            f"left {duration(progress.seconds_left)}",
            f"steps {count(progress.env_steps)}",
            f"steps/s {count(progress.get('fps/total'))}",
            f"return {figure(progress.get('return/leader'))}",
            f"successes {figure(progress.get('successes/leader'))}",
            f"KL {figure(progress.get('kl/own'))}",
            f"lr {figure(progress.get('lr'))}",
        ]
        self.message("  ".join(part for part in parts if not part.endswith(" -")))


class LiveView:
    """A table that redraws itself in place; messages scroll by above it."""

    def __init__(self) -> None:
        self._live: Live | None = None
        self._progress: Progress | None = None
        self._terminal = QuietTerminal()

    def start(self, config: TrainConfig, folder: RunFolder, total_iterations: int, first_iteration: int) -> None:
        from rich.live import Live

        from echelon.console.dashboard import dashboard

        progress = self._progress = Progress(config, folder, total_iterations, first_iteration)
        self._live = Live(get_renderable=lambda: dashboard(progress), refresh_per_second=4)
        self._terminal.enter()
        self._live.start()

    def update(self, metrics: Mapping[str, float]) -> None:
        if self._progress is not None:
            self._progress.update(metrics)

    def message(self, text: str) -> None:
        if self._live is not None:
            self._live.console.print(text, markup=False, highlight=False)
        else:
            print(text, flush=True)

    def stop(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
            self._terminal.leave()


def default_view() -> View:
    """The view of `train` in Python: progress in a notebook or on a terminal, nothing elsewhere."""
    notebook = "ipykernel" in sys.modules
    return PlainView() if notebook else choose_view() if sys.stdout is not None and sys.stdout.isatty() else NullView()


def choose_view() -> View:
    """A live table where standard output is a terminal that can draw one, lines elsewhere."""
    from rich.console import Console

    console = Console()
    able = console.is_terminal and not console.is_dumb_terminal and console.encoding.lower().startswith("utf")
    return LiveView() if able else PlainView()
