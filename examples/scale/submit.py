"""Many runs on SLURM from Python, with submitit: `pip install submitit`, then

    python examples/scale/submit.py --partition gpu --folder /shared/runs/study

One array task per run, a GPU each. SLURM tells submitit before a run's time is up or it is preempted, and submitit
queues it again; the run resumes from its last checkpoint, because its folder is the only thing it needs.
"""

import argparse
from dataclasses import dataclass, replace
from pathlib import Path

import submitit

from echelon import preset, train
from echelon.config import TrainConfig


@dataclass(frozen=True)
class Training:
    """A run that can be queued again."""

    config: TrainConfig

    def __call__(self) -> str:
        return str(train(self.config).path)

    def checkpoint(self) -> submitit.helpers.DelayedSubmission:
        """What submitit calls before the run is stopped: the same once more, which resumes."""
        return submitit.helpers.DelayedSubmission(self)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="a folder that all machines share")
    parser.add_argument("--task", default="AllegroHand")
    parser.add_argument("--algos", nargs="+", default=["ppo", "cpo"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--iterations", type=int, help="instead of the preset's")
    parser.add_argument("--partition")
    parser.add_argument("--gpus", type=int, default=1, help="of each run; 0 trains on CPUs")
    parser.add_argument("--hours", type=float, default=4.0)
    given = parser.parse_args()

    executor = submitit.AutoExecutor(folder=given.folder / "submitit")
    executor.update_parameters(
        timeout_min=round(60 * given.hours), cpus_per_task=8 if given.gpus else 1, slurm_partition=given.partition
    )
    if given.gpus:
        executor.update_parameters(gpus_per_node=given.gpus)
    start = preset(given.task)
    runs = [
        replace(start, algo=algo, seed=seed, out=str(given.folder / f"{given.task}-{algo}-s{seed}"))
        for seed in range(given.seeds)
        for algo in given.algos
    ]
    if given.iterations:
        runs = [replace(run, iterations=given.iterations) for run in runs]
    with executor.batch():  # one array
        jobs = [executor.submit(Training(run)) for run in runs]
    print("submitted", *(job.job_id for job in jobs))


if __name__ == "__main__":
    main()
