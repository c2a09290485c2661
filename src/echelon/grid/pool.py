"""Where cells train: processes on this machine here, the nodes of a Ray cluster in `echelon.grid.cluster`."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from echelon.grid.cells import Cell
from echelon.grid.process import CellProcess

POLL_S = 0.25

Finished = Callable[[Cell], str | None]
"""Called with a cell that is done, on the machine that trained it; what it returns is said beside the cell's name."""


class Job(Protocol):
    """A cell that trains, or waits for a machine that will train it."""

    @property
    def node(self) -> str | None:
        """The machine it trains on, empty for this one; None while it waits for one."""
        ...

    def ended(self) -> bool: ...

    @property
    def held(self) -> bool:
        """Whether it ended because another process trains the cell."""
        ...

    def failure(self) -> str:
        """How it ended, and the last thing it said."""
        ...

    def ask_to_stop(self) -> None:
        """Let it save and end."""
        ...

    def wait(self) -> None:
        """Until it has ended."""
        ...


class Pool(Protocol):
    """Machines that train cells."""

    def has_room(self, cell: Cell, jobs: int) -> bool:
        """Whether the cell can be started beside so many others."""
        ...

    def start(self, cell: Cell) -> Job: ...

    def watch(self) -> None:
        """Let a moment pass, and look what has happened in it."""
        ...

    def finish(self, cell: Cell) -> str | None:
        """What `finished` says about a cell that is done."""
        ...

    def news(self) -> list[str]:
        """What a user should be told, once."""
        ...

    def close(self) -> None: ...


class LocalPool:
    """Processes on this machine, `workers` at a time."""

    def __init__(self, logs: Path, workers: int, finished: Finished) -> None:
        self._logs, self._workers, self._finished = logs, workers, finished

    def has_room(self, cell: Cell, jobs: int) -> bool:
        return jobs < self._workers

    def start(self, cell: Cell) -> CellProcess:
        return CellProcess(cell, self._logs)

    def watch(self) -> None:
        time.sleep(POLL_S)

    def finish(self, cell: Cell) -> str | None:
        return self._finished(cell)

    def news(self) -> list[str]:
        return []

    def close(self) -> None: ...
