"""Train the cells of a grid; what is done is not done again."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from echelon.errors import UserError
from echelon.grid.cells import Cell
from echelon.grid.process import CellProcess
from echelon.grid.progress import GridProgress, GridView, choose_grid_view
from echelon.runs.lock import is_held

POLL_S = 0.25


def run(
    cells: Sequence[Cell],
    logs: Path,
    *,
    workers: int = 1,
    make_view: Callable[[GridProgress], GridView] = choose_grid_view,
    finished: Callable[[Cell], str | None] | None = None,
) -> dict[str, str]:
    """Train every cell that is not done yet, `workers` at a time; why cells failed, by their names.

    `logs` is a folder for each cell's settings and output. `finished` is called in this process with every cell that is
    done, those of an earlier call first; what it returns is said beside the cell's name. A cell that fails is marked
    and the others go on. On an interrupt the running cells save their state and end; the same call goes on from there.
    """
    try:
        logs.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{logs} cannot be written: {error.strerror}; choose another folder") from None
    progress = GridProgress(cells, workers)
    _Grid(progress, logs, workers, make_view(progress), finished or (lambda cell: None)).run()
    return progress.failed


class _Grid:
    """The cells that wait, and the processes of those that train."""

    def __init__(
        self, progress: GridProgress, logs: Path, workers: int, view: GridView, finished: Callable[[Cell], str | None]
    ) -> None:
        self._progress, self._logs, self._workers = progress, logs, workers
        self._view, self._finished = view, finished
        self._done_before = [cell for cell in progress.cells if progress.state(cell) == "done"]
        self._waiting = [cell for cell in progress.cells if progress.state(cell) != "done"]
        self._processes: dict[str, CellProcess] = {}
        self._held: set[str] = set()
        """Cells that were said to be held by another process."""

    def run(self) -> None:
        self._view.begin()
        try:
            for cell in self._done_before:
                self._finished(cell)
            while self._waiting or self._processes:
                self._start_cells()
                self._view.tick()
                time.sleep(POLL_S)
                self._collect_cells()
        except BaseException:
            self._stop()
            raise
        finally:
            self._view.stop()

    def _start_cells(self) -> None:
        """Start waiting cells, in order, while there are workers for them."""
        for cell in list(self._waiting):
            if len(self._processes) >= self._workers:
                return
            if is_held(cell.path):  # by another grid, or by a process of one that was killed and is still saving
                self._tell_held(cell)
                continue
            self._waiting.remove(cell)
            if cell.done:  # by that process
                self._end(cell, None)
                continue
            self._view.message(f"{cell.name} goes on" if cell.newest() else f"{cell.name} starts")
            self._processes[cell.name] = CellProcess(cell, self._logs)
            self._progress.running.append(cell)

    def _collect_cells(self) -> None:
        """Take in the cells whose process has ended."""
        for cell in list(self._progress.running):
            process = self._processes[cell.name]
            if process.ended():
                del self._processes[cell.name]
                self._progress.running.remove(cell)
                if process.held and not cell.done:  # another grid was faster
                    self._tell_held(cell)
                    self._waiting.append(cell)
                else:
                    self._end(cell, None if cell.done else process.failure())

    def _tell_held(self, cell: Cell) -> None:
        if cell.name not in self._held:
            self._held.add(cell.name)
            self._view.message(f"{cell.name} is held by another process; waiting for it")

    def _end(self, cell: Cell, failure: str | None) -> None:
        if failure is not None:
            self._progress.failed[cell.name] = failure
            self._view.message(f"{cell.name} failed: {failure}")
            return
        self._progress.finish(cell)
        said = self._finished(cell)
        self._view.message(f"{cell.name} is done{f': {said}' if said else ''}")

    def _stop(self) -> None:
        """Let all running cells save their state and end."""
        for process in self._processes.values():
            process.ask_to_stop()
        for process in self._processes.values():
            process.wait()
