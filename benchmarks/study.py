"""Runs a grid of settings and seeds, goes on where it stopped, and keeps what is needed to check a claim.

A cell is one training run and the evaluation of its result. Finished cells are two CSV files in the study's folder
under `results/`: `runs.csv`, a line per cell, and `curves.csv`, about fifty points of each learning curve. The run
folders themselves are scratch.
"""

import csv
import math
import multiprocessing
import os
import platform
import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from echelon.config import TrainConfig
from echelon.runs.folder import RunFolder

RESULTS = Path(__file__).parent.parent / "results"
SCRATCH = Path(__file__).parent.parent / "runs" / "studies"
Row = dict[str, Any]

POINTS = 50
"""Points kept of a curve; each is the mean over its stretch of iterations."""


@dataclass(frozen=True)
class Kept:
    """What remains of a finished run: its line of `runs.csv` and its lines of `curves.csv`."""

    row: Row
    curve: list[Row]


@dataclass(frozen=True)
class Cell:
    """One run of a study."""

    method: str
    config: TrainConfig

    @property
    def key(self) -> tuple[str, str]:
        return self.method, str(self.config.seed)


def grid(methods: dict[str, TrainConfig], seeds: Sequence[int]) -> list[Cell]:
    """Every method with every seed, seed by seed, so that a study that is stopped early is balanced."""
    return [Cell(method, replace(config, seed=seed)) for seed in seeds for method, config in methods.items()]


def run(name: str, cells: Sequence[Cell], keep: Callable[[RunFolder], Kept], workers: int) -> Path:
    """Run the cells that are not in `results/NAME` yet; `keep` says what remains of each, usually a `Summary`."""
    folder = RESULTS / name
    folder.mkdir(parents=True, exist_ok=True)
    done = {(row["method"], row["seed"]) for row in read(folder / "runs.csv")}
    left = [cell for cell in cells if cell.key not in done]
    print(f"{name}: {len(cells) - len(left)} of {len(cells)} done, {workers} workers, {machine()}", flush=True)
    started = time.monotonic()
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        jobs = [pool.submit(_run_cell, name, cell, keep) for cell in left]
        for number, job in enumerate(as_completed(jobs), start=1):
            kept = job.result()
            row = kept.row
            append(folder / "curves.csv", kept.curve)  # first, since the line in runs.csv says that both are there
            append(folder / "runs.csv", [row])
            remaining = (time.monotonic() - started) / number * (len(left) - number)
            print(f"{number}/{len(left)}  {row['method']} seed {row['seed']}: {row['cpu_s']} s", end="; ")
            print(f"{remaining / 60:.0f} min left", flush=True)
    return folder


def _run_cell(name: str, cell: Cell, keep: Callable[[RunFolder], Kept]) -> Kept:
    """Train, and keep what is asked for, with whose it is and the processor time that training took."""
    from echelon.training.loop import train

    out = SCRATCH / name / f"{cell.method}-s{cell.config.seed}"
    shutil.rmtree(out, ignore_errors=True)
    began = time.process_time()
    folder = train(replace(cell.config, out=str(out), checkpoint_every=10**9, keep_checkpoints=1))
    seconds = f"{time.process_time() - began:.1f}"
    kept, key = keep(folder), {"method": cell.method, "seed": cell.config.seed}
    return Kept(key | kept.row | {"cpu_s": seconds}, [key | point for point in kept.curve])


@dataclass(frozen=True)
class Summary:
    """What is usually kept of a run."""

    columns: Sequence[str]
    """Metrics kept of the curves; `final_NAME` is the mean of one over the last quarter of training."""
    figures: Callable[[RunFolder], Row] | None = None
    """Finds out more about a run, for `runs.csv`."""
    episodes: int = 64
    """Over how many the leader is evaluated; 0 leaves that out."""

    def __call__(self, folder: RunFolder) -> Kept:
        from echelon.runs.metrics import read_metrics

        lines = read_metrics(folder)
        last = lines[-len(lines) // 4 :]
        row = {
            "env_steps": int(lines[-1]["env_steps"]),
            **(_score(folder, self.episodes) if self.episodes else {}),
            "seconds": f"{lines[-1]['wall_s']:.1f}",
            **{f"final_{column}": _mean([line.get(column, math.nan) for line in last]) for column in self.columns},
            **(self.figures(folder) if self.figures else {}),
        }
        return Kept(row, _thin(lines, self.columns))


def _score(folder: RunFolder, episodes: int) -> dict[str, str]:
    """The leader's evaluation."""
    from echelon.evaluation.evaluate import evaluate

    evaluation = evaluate(folder, num_envs=episodes, seed=10_000)
    leader, sampled = (score for score in evaluation.scores if score.policy == evaluation.leader)
    return {
        "return": f"{leader.return_mean:.4g}",
        "return_sampled": f"{sampled.return_mean:.4g}",
        "ended_early": f"{leader.terminated:.3f}",
        **{name: f"{value:.4g}" for name, value in leader.extra.items()},
    }


def _thin(lines: list[dict[str, float]], columns: Sequence[str]) -> list[Row]:
    size = max(1, math.ceil(len(lines) / POINTS))
    points = []
    for i in range(0, len(lines), size):
        part = lines[i : i + size]
        means = {column: _mean([line.get(column, math.nan) for line in part]) for column in columns}
        points.append({"env_steps": int(part[-1]["env_steps"]), "wall_s": f"{part[-1]['wall_s']:.1f}", **means})
    return points


def _mean(values: list[float]) -> str:
    """Mean of what was measured, or nothing."""
    known = [value for value in values if not math.isnan(value)]
    return f"{sum(known) / len(known):.5g}" if known else ""


def read(path: Path) -> list[dict[str, str]]:
    """Rows of a CSV file; none if there is no file."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def append(path: Path, rows: list[Row]) -> None:
    """Add rows to a CSV file, and columns where they bring new ones."""
    rows = [*read(path), *rows]
    names = list(dict.fromkeys(name for row in rows for name in row))
    fresh = path.with_suffix(".new")
    with fresh.open("w", newline="") as file:
        writer = csv.DictWriter(file, names, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    fresh.replace(path)


def machine() -> str:
    """Where the figures come from."""
    return f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
