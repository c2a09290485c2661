"""A grid of runs, each trained in a process of its own. `echelon compare` and the studies in `benchmarks` use it.

    from echelon.grid import Cell, run

    cells = [Cell(f"{name}-s{seed}", replace(config, seed=seed, out=f"runs/study/{name}-s{seed}")) ...]
    failed = run(cells, Path("runs/study/logs"), workers=2, finished=lambda cell: keep(RunFolder.open(cell.path)))

A cell carries its whole config, which its process reads from a JSON file. What is done is read from the run folders, so
that the same call goes on with a grid that was stopped or killed.
"""

from echelon.grid.cells import Cell
from echelon.grid.runner import run

__all__ = ["Cell", "run"]
