"""Progress of a grid, and its views: a live table on a terminal, lines elsewhere."""

import math
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from echelon.console.wording import count, duration, figure
from echelon.grid.cells import Cell, expected_seconds, pace

if TYPE_CHECKING:
    from rich.console import RenderableType

MARKS = {"done": "[green]✓[/]", "running": "[bold cyan]●[/]", "failed": "[red]✗[/]", "left": "[bright_black]·[/]"}
LEGEND = "  ".join(f"{mark} {name}" for name, mark in MARKS.items())


class GridProgress:
    """Which cells are done, which run, which failed, and what is left."""

    def __init__(self, cells: Sequence[Cell], workers: int = 1) -> None:
        self.cells = cells
        self.running: list[Cell] = []
        self.nodes: dict[str, str] = {}
        """The machines of running cells, by their names; an empty one is this machine."""
        self.failed: dict[str, str] = {}
        """Why, by the name of the cell."""
        self._workers = workers
        self._done = {cell.name: pace(cell) for cell in cells if cell.done}

    def finish(self, cell: Cell) -> None:
        """`cell` is done."""
        self._done[cell.name] = pace(cell)

    def leave(self, cell: Cell) -> None:
        """`cell` trains no longer."""
        self.nodes.pop(cell.name, None)
        if cell in self.running:
            self.running.remove(cell)

    def state(self, cell: Cell) -> str:
        if cell.name in self._done:
            return "done"
        if cell in self.running:
            return "running"
        return "failed" if cell.name in self.failed else "left"

    def number(self, state: str) -> int:
        """Cells in that state."""
        return sum(self.state(cell) == state for cell in self.cells)

    @property
    def seconds_left(self) -> float:
        """Until all cells are done, by what the others took; NaN before anything is known."""
        known = [(cell, self._done[cell.name]) for cell in self.cells if cell.name in self._done]
        known += [(cell, pace(cell)) for cell in self.running]
        left = [expected_seconds(cell, known) for cell in self.cells if self.state(cell) == "left"]
        left += [expected_seconds(cell, known) * (1 - trained_share(cell)) for cell in self.running]
        return math.fsum(left) / max(1, min(max(self._workers, len(self.running)), len(left)))

    def headline(self) -> str:
        """All of it in one line."""
        failed = f", {self.number('failed')} failed" if self.failed else ""
        nodes = {node for node in self.nodes.values() if node}
        where = f" on {len(nodes)} node{'s' if len(nodes) > 1 else ''}" if nodes else ""
        return (
            f"{self.number('done')} of {len(self.cells)} done{failed}, {self.number('running')} running{where}, "
            f"{self.number('left')} left, time left {duration(self.seconds_left)}"
        )

    def running_lines(self) -> list[str]:
        """Where each running cell stands."""
        return [_running_line(cell, self.nodes.get(cell.name, "")) for cell in self.running]


def trained_share(cell: Cell) -> float:
    """Part of a cell's iterations that are done, 0 to 1."""
    return min(1.0, cell.newest().get("iteration", 0) / cell.config.num_iterations)


def _running_line(cell: Cell, node: str) -> str:
    """Where a running cell stands."""
    newest = cell.newest()
    parts = [f"{cell.name}{f' on {node}' if node else ''}: {trained_share(cell):4.0%}"]
    if isinstance(newest.get("return/leader"), float):
        parts.append(f"return {figure(newest['return/leader'])}")
    if isinstance(newest.get("fps/total"), float):
        parts.append(f"{count(newest['fps/total'])} steps/s")
    return "  ".join(parts)


class GridView(Protocol):
    """Told when something happened, and now and then in between."""

    def begin(self) -> None: ...

    def tick(self) -> None:
        """Time has passed."""
        ...

    def message(self, text: str) -> None: ...

    def stop(self) -> None: ...


class PlainGridView:
    """A line when a cell starts or ends, and one every half minute between."""

    EVERY_S = 30.0

    def __init__(self, progress: GridProgress) -> None:
        self._progress = progress
        self._next = 0.0

    def begin(self) -> None:
        self.message(self._progress.headline())
        self._next = time.monotonic() + self.EVERY_S

    def tick(self) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + self.EVERY_S
            self.message("; ".join(self._progress.running_lines()) + f"  ({self._progress.headline()})")

    def message(self, text: str) -> None:
        print(text, flush=True)

    def stop(self) -> None:
        self.message(self._progress.headline())


class LiveGridView:
    """A table of tasks and methods with a mark per seed, redrawn in place."""

    def __init__(self, progress: GridProgress) -> None:
        from rich.live import Live

        self._live = Live(get_renderable=lambda: grid_table(progress), refresh_per_second=2)

    def begin(self) -> None:
        self._live.start()

    def tick(self) -> None: ...

    def message(self, text: str) -> None:
        self._live.console.print(text, markup=False, highlight=False)

    def stop(self) -> None:
        self._live.stop()


def grid_table(progress: GridProgress) -> "RenderableType":
    """A row per task, a column per method, a mark per seed; below them the cells that train."""
    from rich.console import Group
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    tasks = list(dict.fromkeys(cell.config.task for cell in progress.cells))
    methods = list(dict.fromkeys(cell.config.method for cell in progress.cells))
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="cyan")
    for heading in ("", *methods):
        table.add_column(heading, no_wrap=True)
    for task in tasks:
        groups = [[c for c in progress.cells if (c.config.task, c.config.method) == (task, name)] for name in methods]
        table.add_row(task, *(" ".join(MARKS[progress.state(cell)] for cell in group) for group in groups))
    running = [Text(line) for line in progress.running_lines() or [""]]
    lines = [table, Text(), Text.from_markup(f"[bright_black]{LEGEND}[/]"), *running]
    return Panel(
        Group(*lines), title=Text(progress.headline(), style="bold"), title_align="left", border_style="bright_black"
    )


def choose_grid_view(progress: GridProgress) -> GridView:
    """A live table where standard output is a terminal that can draw one, lines elsewhere."""
    from rich.console import Console

    able = Console().is_terminal and (sys.stdout.encoding or "").lower().startswith("utf")
    return LiveGridView(progress) if able else PlainGridView(progress)
