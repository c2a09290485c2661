"""Everything the page shows, as CSV files.

Only `wall_clock.csv` and `throughput.csv` hold clock times. All other files follow from the seeds alone, so a
comparison that was interrupted and resumed writes identical files.
"""

import csv
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from echelon.report.comparison import aggregates, improvements, reach_table, score_table
from echelon.report.contents import Contents
from echelon.report.curves import thin
from echelon.report.payload import (
    ADVERSARY,
    AXES,
    COUPLING,
    leader_metrics,
    settings_table,
    throughput,
)
from echelon.report.reading import Evaluated, Run

Row = Sequence[Any]


def write_csv_files(contents: Contents, folder: Path) -> None:
    """Write one file per table into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    tables = {
        "runs": _runs(contents),
        "scores": _scores(contents),
        "evaluations": _evaluations(contents),
        "aggregate": _aggregates(contents),
        "improvement": _improvements(contents),
        "steps_to_reach": _reach(contents),
        "curves": _curves(contents, "env_steps"),
        "curves_by_gradient_steps": _curves(contents, "gradient_steps"),
        "wall_clock": _curves(contents, "wall_s"),
        "run_curves": _run_curves(contents),
        "kl": _maps(contents),
        "throughput": _throughput(contents),
        "settings": _settings(contents),
        "problems": [("folder", "problem"), *((problem.path, problem.sentence) for problem in contents.problems)],
    }
    for name, rows in tables.items():
        with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8", errors="backslashreplace") as file:
            csv.writer(file, lineterminator="\n").writerows([_plain(value) for value in row] for row in rows)


def _runs(contents: Contents) -> Iterable[Row]:
    metrics = list(dict.fromkeys(name for run in contents.runs for name in leader_metrics(run)))
    yield ("run", "task", "method", "seed", "policies", "iterations", "env_steps", "finished", *metrics)
    for method in contents.methods:
        for run in method.runs:
            finals = [run.final(name) for name in metrics]
            config = run.config
            counts = (run.iterations, int(run.env_steps), run.finished)
            yield (run.name, run.task, method.name, config.seed, config.num_policies, *counts, *finals)


def _scores(contents: Contents) -> Iterable[Row]:
    numbers = ("runs", "mean", "deviation", "iqm", "iqm_low", "iqm_high", "best", "p", "p_holm", "bold")
    yield ("task", "method", "scored_by", "env_steps", "provisional", *numbers)
    for cell in score_table(contents):
        by = "evaluation" if contents.basis(cell.task).evaluated and not cell.provisional else "training"
        yield (
            *(cell.task, cell.method, by, cell.steps, cell.provisional, cell.sample.runs, cell.sample.mean),
            *(cell.sample.deviation, cell.iqm, *cell.interval, cell.best, cell.p, cell.p_holm, cell.bold),
        )


def _evaluations(contents: Contents) -> Iterable[Row]:
    """A row per policy and way of acting of every run that was evaluated."""
    names = dict.fromkeys(name for _, one in _evaluated(contents) for row in one.scores.values() for name in row)
    yield ("run", "policy", "actions", "episodes", *names)
    for run, one in _evaluated(contents):
        for (policy, mode), row in one.scores.items():
            yield (run.name, policy, mode, one.episodes, *(row.get(name, math.nan) for name in names))


def _evaluated(contents: Contents) -> list[tuple[Run, Evaluated]]:
    return [(run, run.evaluation) for run in contents.runs if run.evaluation is not None]


def _aggregates(contents: Contents) -> Iterable[Row]:
    yield ("method", "normalised_iqm", "low", "high")
    for one in aggregates(contents):
        yield (one.method, one.iqm, *one.interval)


def _improvements(contents: Contents) -> Iterable[Row]:
    yield ("method", "other", "probability", "low", "high")
    for one in improvements(contents):
        yield (one.method, one.other, one.probability, *one.interval)


def _reach(contents: Contents) -> Iterable[Row]:
    yield ("task", "method", "final_score_of", "env_steps", "share_of_its_steps")
    for one in reach_table(contents):
        yield (one.task, one.method, one.other, one.steps, one.share)


def _curves(contents: Contents, axis: str) -> Iterable[Row]:
    yield ("task", "method", "metric", axis, "mean", "deviation", "iqm", "iqm_low", "iqm_high", "runs")
    for task in contents.tasks:
        for method in contents.methods:
            curve = contents.band(method, task, contents.score, axis)
            if curve is not None:
                columns = (curve.x, curve.mean, curve.deviation, curve.iqm, curve.low, curve.high, curve.runs)
                for row in zip(*columns, strict=True):
                    yield (task, method.name, contents.score, *row)


def _run_curves(contents: Contents) -> Iterable[Row]:
    """A row per point of a run, thinned as for the page."""
    policies = [f"return/policy_{i}" for i in range(max(run.config.num_policies for run in contents.runs))]
    leader = dict.fromkeys(name for run in contents.runs for name in leader_metrics(run))
    metrics = [*leader, *COUPLING, *ADVERSARY, *policies]
    axes = [axis for axis in AXES if axis != "wall_s"]
    yield ("run", *axes, *metrics)
    for run in contents.runs:
        known = {name: thin(run, name) for name in (*axes, *metrics) if name in run.columns}
        for point in range(len(known["env_steps"])):
            yield (run.name, *(known[name][point] if name in known else math.nan for name in (*axes, *metrics)))


def _maps(contents: Contents) -> Iterable[Row]:
    yield ("run", "env_steps", "from", "to", "kl", "nearest")
    for run in contents.runs:
        for line in run.distances:
            for i, row in enumerate(line["kl"]):
                others = [j for j in range(len(row)) if j != i]
                nearest = min(others, key=lambda j: (math.isnan(row[j]), row[j]), default=-1)
                for j in others:
                    yield (run.name, line["env_steps"], i, j, row[j], j == nearest)


def _throughput(contents: Contents) -> Iterable[Row]:
    found = [(run, throughput(run)) for run in contents.runs]
    parts = list(dict.fromkeys(part for _, one in found for part in one["parts"]))
    yield ("run", "wall_s", "env_steps_per_s", *(f"{part}_s" for part in parts))
    for run, one in found:
        seconds = run.columns["wall_s"][-1] if "wall_s" in run.columns else math.nan
        yield (run.name, seconds, one["rate"], *(one["parts"].get(part, math.nan) for part in parts))


def _settings(contents: Contents) -> Iterable[Row]:
    yield ("task", "setting", "method", "value")
    for task in contents.tasks:
        table = settings_table(contents, task)
        for name, *values in table["rows"]:
            for method, value in zip(table["methods"], values, strict=True):
                yield (task, name, method, value)


def _plain(value: Any) -> Any:
    """A cell: yes or no, numbers with seven digits, empty where the value is missing. A text that a spreadsheet would
    take for a formula gets a ' before it: names of folders are anybody's."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.7g}" if math.isfinite(value) else ""
    if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r", "\n")):
        return f"'{value}"
    return "" if value is None else value
