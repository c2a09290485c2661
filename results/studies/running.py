"""A study: named settings, trained with several seeds each, and what is kept of the runs to check a claim.

Finished runs are two CSV files in the study's folder under `results/`: `runs.csv`, a line per run, and `curves.csv`,
some points of each learning curve. A run that has its line there is not trained again. The run folders lie in
`runs/studies/`; remove those too to train a study again.
"""

import csv
import math
import os
import platform
import resource
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from echelon.config import TrainConfig
from echelon.errors import UserError
from echelon.evaluation.evaluate import evaluate
from echelon.grid import Job, run
from echelon.runs.folder import RunFolder
from echelon.runs.metrics import read_metrics

ROOT = Path(__file__).parents[2]
Row = dict[str, Any]
Rows = list[dict[str, str]]
"""Rows of a CSV file, by the names of its columns."""


@dataclass(frozen=True)
class Study:
    """What is trained, what is kept, and what is made of it."""

    methods: Mapping[str, TrainConfig]
    columns: Sequence[str]
    """Metrics kept of the curves; `final_NAME` is the mean of one over the last quarter of training."""
    shown: Sequence[str]
    """Columns of `runs.csv` in the study's table."""
    goals: Mapping[str, tuple[str, float]] = field(default_factory=dict)
    """A column of `runs.csv` and the least of it that a run needs to count, by what the table calls it."""
    pairs: Sequence[tuple[str, str]] = ()
    """Methods whose runs are compared by return and by successes."""
    controls: Mapping[str, TrainConfig] = field(default_factory=dict)
    """Trained only if asked for by name."""
    seeds: Mapping[str, int] = field(default_factory=dict)
    """By method; five unless named here."""
    figures: Callable[[RunFolder, Path], Row] | None = None
    """Finds out more about a run, for `runs.csv`; may leave a file in the study's folder."""
    episodes: int = 64
    """Over how many every policy is evaluated; 0 leaves that out."""
    points: int = 50
    """Kept of a curve; each is the mean over its stretch of iterations."""
    workers: int = 1
    """Runs at a time, unless the command says otherwise."""


def jobs(study: Study, methods: Sequence[str], seeds: int | None, changes: Row, scratch: Path) -> list[Job]:
    """Every method with every seed, seed by seed, so that a study that is stopped early is balanced."""
    known = {**study.methods, **study.controls}
    counts = {name: seeds or study.seeds.get(name, 5) for name in methods}
    changes = changes | {"checkpoint_every": 10**9, "keep_checkpoints": 1}  # only the end of a run is needed
    return [
        Job(f"{name}-s{seed}", replace(known[name], seed=seed, out=str(scratch / f"{name}-s{seed}"), **changes))
        for seed in range(max(counts.values()))
        for name in methods
        if seed < counts[name]
    ]


def train(study: Study, wanted: Sequence[Job], folder: Path, workers: int) -> None:
    """Train the jobs that are not in `folder` yet, and keep there what the study keeps of each as it is done."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = {f"{row['method']}-s{row['seed']}" for row in read(folder / "runs.csv")}
    left = [job for job in wanted if job.name not in kept]
    print(f"{len(wanted) - len(left)} of {len(wanted)} are in {folder}; {machine(wanted[0].config.device)}", flush=True)
    before = processor_time()

    def finished(job: Job) -> None:
        nonlocal before
        key = {"method": job.name.rpartition("-s")[0], "seed": job.config.seed}
        row, curve = keep(study, RunFolder.open(job.path), folder)
        now = processor_time()
        append(folder / "curves.csv", [key | point for point in curve])  # first: a line in runs.csv says both are there
        append(folder / "runs.csv", [key | row | {"cpu_s": f"{now - before:.1f}"}])
        before = now

    failed = run(left, Path(wanted[0].config.out or "").parent / "logs", workers=workers, finished=finished)
    if failed:
        raise UserError(f"{len(failed)} of {len(wanted)} runs failed: {', '.join(failed)}")


def processor_time() -> float:
    """Seconds that the processes of jobs took. One counts once its end is noticed, which is just before it is kept."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def keep(study: Study, run: RunFolder, folder: Path) -> tuple[Row, list[Row]]:
    """What remains of a run: its line, and the points of its curve."""
    lines = read_metrics(run)
    last = lines[-len(lines) // 4 :]
    row = {
        "env_steps": int(lines[-1]["env_steps"]),
        **(scores(run, study.episodes) if study.episodes else {}),
        "seconds": f"{lines[-1]['wall_s']:.1f}",
        **{f"final_{column}": mean(last, column) for column in study.columns},
        **(study.figures(run, folder) if study.figures else {}),
    }
    size = max(1, math.ceil(len(lines) / study.points))
    parts = [lines[i : i + size] for i in range(0, len(lines), size)]
    curve = [
        {"env_steps": int(part[-1]["env_steps"]), "wall_s": f"{part[-1]['wall_s']:.1f}"}
        | {column: mean(part, column) for column in study.columns}
        for part in parts
    ]
    return row, curve


def scores(run: RunFolder, episodes: int) -> Row:
    """The leader's evaluation, acting both ways, and the most of any follower."""
    found = evaluate(run, num_envs=episodes, seed=10_000, device=run.config.device)
    leader, sampled = (score for score in found.scores if score.policy == found.leader)
    others = [score for score in found.scores if score.policy != found.leader and score.mode == leader.mode]
    row = {"return": leader.return_mean, "return_sampled": sampled.return_mean, "ended_early": leader.terminated}
    for name, value in leader.extra.items():
        row |= {name: value, f"{name}_sampled": sampled.extra[name]}
        if others:
            row[f"{name}_followers_most"] = max(score.extra[name] for score in others)
    return {name: f"{value:.4g}" for name, value in row.items()}


def mean(lines: Sequence[Mapping[str, float]], column: str) -> str:
    """Of what was measured, or nothing."""
    known = [line[column] for line in lines if not math.isnan(line.get(column, math.nan))]
    return f"{sum(known) / len(known):.5g}" if known else ""


def read(path: Path) -> Rows:
    """Rows of a CSV file; none if there is no file."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def append(path: Path, rows: Sequence[Row]) -> None:
    """Add rows to a CSV file, and columns where they bring new ones."""
    rows = [*read(path), *rows]
    names = list(dict.fromkeys(name for row in rows for name in row))
    fresh = path.with_suffix(".new")
    with fresh.open("w", newline="") as file:
        writer = csv.DictWriter(file, names, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    fresh.replace(path)


def machine(device: str) -> str:
    """Where the figures come from."""
    gpu = f"one {torch.cuda.get_device_name()}, " if device != "cpu" and torch.cuda.is_available() else ""
    versions = f"Python {platform.python_version()}, torch {torch.__version__}"
    return f"{gpu}{os.cpu_count()} cores, {platform.machine()}, {versions}"
