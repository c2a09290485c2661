"""Train the cells of a grid; what is done is not done again."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from echelon.errors import UserError
from echelon.grid.cells import Cell
from echelon.grid.pool import Finished, Job, LocalPool, Pool
from echelon.grid.progress import GridProgress, GridView, choose_grid_view
from echelon.runs.lock import is_held

if TYPE_CHECKING:
    from echelon.grid.cluster import RayCluster


def run(
    cells: Sequence[Cell],
    logs: Path,
    *,
    workers: int = 1,
    cluster: "RayCluster | None" = None,
    make_view: Callable[[GridProgress], GridView] = choose_grid_view,
    finished: Finished | None = None,
) -> dict[str, str]:
    """Train every cell that is not done yet, `workers` at a time, or as many as fit into `cluster`; why cells failed,
    by their names.

    `logs` is a folder for each cell's settings and output. `finished` is called with every cell that is done, those of
    an earlier call first: in this process, or on a node of the cluster. What it returns is said beside the cell's name.
    A cell that fails is marked and the others go on. On an interrupt the running cells save their state and end; the
    same call goes on from there.
    """
    try:
        logs.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{logs} cannot be written: {error.strerror}; choose another folder") from None
    finished = finished or _say_nothing
    pool = LocalPool(logs, workers, finished) if cluster is None else cluster.pool(logs, finished)
    progress = GridProgress(cells, workers)
    _Grid(progress, pool, make_view(progress)).run()
    return progress.failed


def _say_nothing(cell: Cell) -> None: ...


class _Grid:
    """The cells that wait, and the jobs of those that train."""

    def __init__(self, progress: GridProgress, pool: Pool, view: GridView) -> None:
        self._progress, self._pool, self._view = progress, pool, view
        self._done_before = [cell for cell in progress.cells if progress.state(cell) == "done"]
        self._waiting = [cell for cell in progress.cells if progress.state(cell) != "done"]
        self._jobs: dict[str, tuple[Cell, Job]] = {}
        self._held: set[str] = set()
        """Cells that were said to be held by another process."""

    def run(self) -> None:
        self._view.begin()
        try:
            for cell in self._done_before:
                self._pool.finish(cell)
            while self._waiting or self._jobs:
                self._start_cells()
                self._view.tick()
                self._pool.watch()
                for text in self._pool.news():
                    self._view.message(text)
                self._show_nodes()
                self._collect_cells()
        except BaseException:
            self._stop()
            raise
        finally:
            self._pool.close()
            self._view.stop()

    def _start_cells(self) -> None:
        """Start waiting cells, in order, while there is room for them."""
        for cell in list(self._waiting):
            if not self._pool.has_room(cell, len(self._jobs)):
                continue
            if is_held(cell.path):  # by another grid, or by a process of one that was killed and is still saving
                self._tell_held(cell)
                continue
            self._waiting.remove(cell)
            if cell.done:  # by that process
                self._end(cell, None)
                continue
            self._jobs[cell.name] = cell, self._pool.start(cell)

    def _show_nodes(self) -> None:
        """Say which cells have begun to train, and which have lost their machine."""
        nodes, running = self._progress.nodes, self._progress.running
        for cell, job in self._jobs.values():
            node, before = job.node, nodes.get(cell.name)
            if node == before:
                continue
            if before is not None:  # Ray may have started it again before anybody looked
                running.remove(cell)
                self._view.message(f"{cell.name} lost its node {nodes.pop(cell.name)} and goes on elsewhere")
            if node is not None:
                on = f" on {node}" if node else ""
                self._view.message(f"{cell.name} goes on{on}" if cell.newest() else f"{cell.name} starts{on}")
                nodes[cell.name] = node
                running.append(cell)

    def _collect_cells(self) -> None:
        """Take in the cells whose job has ended."""
        for cell, job in list(self._jobs.values()):
            if job.ended():
                del self._jobs[cell.name]
                self._progress.leave(cell)
                if job.held and not cell.done:  # another grid was faster
                    self._tell_held(cell)
                    self._waiting.append(cell)
                else:
                    self._end(cell, None if cell.done else job.failure())

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
        said = self._pool.finish(cell)
        self._view.message(f"{cell.name} is done{f': {said}' if said else ''}")

    def _stop(self) -> None:
        """Let all running cells save their state and end."""
        jobs = [job for _, job in self._jobs.values()]
        for job in jobs:
            job.ask_to_stop()
        for job in jobs:
            job.wait()
