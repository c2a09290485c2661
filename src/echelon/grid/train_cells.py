"""Train the cells of a grid, one after the other; what is done is not done again."""

import time
from pathlib import Path

from echelon.grid.cells import Cell
from echelon.grid.process import CellProcess
from echelon.grid.progress import GridProgress, GridView
from echelon.runs.lock import is_held

POLL_S = 0.25


def train_cells(progress: GridProgress, logs: Path, view: GridView) -> None:
    """Every cell that is not done yet, its output into the folder `logs`. One that fails is marked, and the others go
    on."""
    for cell in progress.cells:
        if progress.state(cell) == "done":
            continue
        progress.running = cell
        _wait_until_free(cell, view)
        view.message(f"{cell.name} starts" if not cell.newest() else f"{cell.name} goes on")
        failure = None if cell.done else _train(cell, logs / f"{cell.name}.log", view)
        progress.running = None
        if failure is not None:
            progress.failed[cell.name] = failure
            view.message(f"{cell.name} failed: {failure}")
        else:
            progress.finish(cell)
            view.message(f"{cell.name} is done")


def _train(cell: Cell, log: Path, view: GridView) -> str | None:
    """Train one cell; why it failed, if it did."""
    process = CellProcess(cell, log)
    try:
        while not process.ended():
            view.tick()
            time.sleep(POLL_S)
    except BaseException:
        process.stop()
        raise
    return None if cell.done else process.failure() or f"it ended before it was done; see {log}"


def _wait_until_free(cell: Cell, view: GridView) -> None:
    """A cell of an earlier start that was killed may still be saving; only one process trains a folder."""
    if is_held(cell.path):
        view.message(f"{cell.name} is still held by another process; waiting for it")
    while is_held(cell.path):
        view.tick()
        time.sleep(POLL_S)
