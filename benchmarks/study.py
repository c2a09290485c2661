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
Figures = Callable[[RunFolder], dict[str, Any]]

POINTS = 50
"""Points kept of a curve; each is the mean over its stretch of iterations."""


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


def run(
    name: str,
    cells: Sequence[Cell],
    columns: Sequence[str],
    workers: int,
    threads: int = 1,
    figures: Figures | None = None,
    episodes: int = 64,
) -> Path:
    """Run the cells that are not in `results/NAME` yet.

    `columns` are the metrics kept of the curves; `figures` finds out more about a finished run, for `runs.csv`; with
    no `episodes` the result is not evaluated.
    """
    folder = RESULTS / name
    folder.mkdir(parents=True, exist_ok=True)
    done = {(row["method"], row["seed"]) for row in read(folder / "runs.csv")}
    left = [cell for cell in cells if cell.key not in done]
    print(f"{name}: {len(cells) - len(left)} of {len(cells)} done, {workers} workers, {machine()}", flush=True)
    started = time.monotonic()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_limit, initargs=(threads,)) as pool:
        jobs = {pool.submit(_run_cell, name, cell, tuple(columns), figures, episodes): cell for cell in left}
        for number, job in enumerate(as_completed(jobs), start=1):
            row, curve = job.result()
            append(folder / "curves.csv", curve)
            append(folder / "runs.csv", [row])
            remaining = (time.monotonic() - started) / number * (len(left) - number)
            print(f"{number}/{len(left)}  {row['method']} seed {row['seed']}: {row['seconds']} s", end="; ")
            print(f"{remaining / 60:.0f} min left", flush=True)
    return folder


def _limit(threads: int) -> None:
    """Workers share the cores; torch's own threads would fight over them."""
    import torch

    torch.set_num_threads(threads)


def _run_cell(
    name: str, cell: Cell, columns: tuple[str, ...], figures: Figures | None, episodes: int
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Train and evaluate; the row and the curve."""
    from echelon.train import train

    out = SCRATCH / name / f"{cell.method}-s{cell.config.seed}"
    shutil.rmtree(out, ignore_errors=True)
    folder = train(replace(cell.config, out=str(out), checkpoint_every=10**9, keep_checkpoints=1))
    return summarise(folder, cell, columns, figures, episodes)


def summarise(
    folder: RunFolder, cell: Cell, columns: tuple[str, ...], figures: Figures | None, episodes: int
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What is kept of a finished run. `final_NAME` is the mean of a metric over the last quarter of training."""
    from echelon.runs.metrics import read_metrics

    lines = read_metrics(folder)
    last = lines[-len(lines) // 4 :]
    key = {"method": cell.method, "seed": cell.config.seed}
    row = key | {
        "env_steps": int(lines[-1]["env_steps"]),
        **(_score(folder, episodes) if episodes else {}),
        "seconds": f"{lines[-1]['wall_s']:.1f}",
        **{f"final_{column}": _mean([line.get(column, math.nan) for line in last]) for column in columns},
        **(figures(folder) if figures else {}),
    }
    return row, [key | point for point in _thin(lines, columns)]


def _score(folder: RunFolder, episodes: int) -> dict[str, str]:
    """The leader's evaluation."""
    from echelon.evaluate import evaluate

    evaluation = evaluate(folder, num_envs=episodes, seed=10_000)
    leader, sampled = (score for score in evaluation.scores if score.policy == evaluation.leader)
    return {
        "return": f"{leader.return_mean:.4g}",
        "return_sampled": f"{sampled.return_mean:.4g}",
        "ended_early": f"{leader.terminated:.3f}",
        **{name: f"{value:.4g}" for name, value in leader.extra.items()},
    }


def _thin(lines: list[dict[str, float]], columns: tuple[str, ...]) -> list[dict[str, Any]]:
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


def append(path: Path, rows: list[dict[str, Any]]) -> None:
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
