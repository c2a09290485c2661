"""A grid of runs, each trained in a process of its own. `echelon compare` and the studies in `benchmarks` use it.

    from echelon.grid import Job, run

    jobs = [Job(f"{name}-s{seed}", replace(config, seed=seed, out=f"runs/study/{name}-s{seed}")) ...]
    failed = run(jobs, Path("runs/study/logs"), workers=2, finished=lambda job: keep(RunFolder.open(job.path)))

The run folders are the only state, so the same call resumes a grid that was stopped or killed.
"""

from echelon.grid.jobs import Job
from echelon.grid.runner import run

__all__ = ["Job", "run"]
