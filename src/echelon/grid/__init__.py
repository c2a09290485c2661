"""A grid of runs, each trained in a process of its own. `echelon compare` and the studies in `results` use it.

    failed = run([Job(f"cpo-s{seed}", replace(config, seed=seed, out=f"runs/cpo-s{seed}")) for seed in range(5)], logs)

The run folders are the only state, so the same call resumes a grid that was stopped or killed.
"""

from echelon.grid.jobs import Job
from echelon.grid.runner import run

__all__ = ["Job", "run"]
