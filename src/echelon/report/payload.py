"""The page's data: runs with their thinned curves, and the settings they differ in.

The page computes its statistics itself, from the runs that are not hidden by the reader.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from echelon.report.contents import Contents
from echelon.report.curves import thin
from echelon.report.methods import differing, find_sweeps, worded
from echelon.report.palette import DASHES, looks
from echelon.report.reading import Run

AXES = ("env_steps", "wall_s", "gradient_steps")
POLICY_POINTS = 150
"""Points of each policy's curve; fewer than a run's, because there are many."""
COUPLING = ("is_deviation", "ess", "kl/follower_to_leader", "nearest_is_leader")
ADVERSARY = ("adversary/loss", "adversary/accuracy")
DIFFERS_BY_RUN = ("task", "seed", "out", "variant")
"""Settings that differ between any two runs or name the method, and say nothing else about it."""


def payload(contents: Contents) -> dict[str, Any]:
    """All data of the page, ready for JSON."""
    number = {run.name: index for index, method in enumerate(contents.methods) for run in method.runs}
    return {
        "score": contents.score,
        "tasks": contents.tasks,
        "methods": [
            {"name": method.name, "colour": look.colour, "dash": look.dash}
            for method, look in zip(contents.methods, looks(contents.methods), strict=True)
        ],
        "runs": [_run(run, number[run.name]) for run in contents.runs],
        "problems": [{"path": problem.path, "sentence": problem.sentence} for problem in contents.problems],
        "settings": merged_settings(contents),
        "sweeps": [
            {
                "task": sweep.task,
                "setting": sweep.setting,
                "points": [[x, number[m.runs[0].name]] for x, m in sweep.points],
            }
            for task in contents.tasks
            for sweep in find_sweeps(contents.methods, task)
        ],
        "dashes": [dashes for _, dashes in DASHES],
    }


def leader_metrics(run: Run) -> list[str]:
    """Metrics of the leader's episodes that a run logged, the return first."""
    names = [name for name in run.columns if name.endswith("/leader")]
    return sorted(names, key=lambda name: name != "return/leader")


def policy_metrics(run: Run) -> tuple[list[str], str]:
    """Names of the metrics with the followers' returns, and with the leader's. A single policy has no followers. In a
    population all members count as followers, since its leader is whichever is best at the time."""
    population = _is_population(run)
    policies = [name for name in run.columns if name.startswith("return/policy_")]
    leader = "return/leader" if population or not policies else policies[0]
    return [name for name in policies if name != leader], leader


def _run(run: Run, method: int) -> dict[str, Any]:
    """The data of one run."""
    shown = [*leader_metrics(run), *COUPLING, *ADVERSARY]
    followers, leader = policy_metrics(run)
    return {
        "name": run.name,
        "path": str(run.path),
        "task": run.task,
        "method": method,
        "seed": run.config.seed,
        "policies": run.config.num_policies,
        "finished": run.finished,
        "iterations": run.iterations,
        "envSteps": run.env_steps,
        "seconds": _finite(run.columns["wall_s"][-1]) if "wall_s" in run.columns else None,
        "notes": run.notes,
        "final": {name: _finite(run.final(name)) for name in (*shown, leader, *followers) if name in run.columns},
        "evaluation": _evaluation(run),
        "axes": {name: _rounded(thin(run, name), 7) for name in AXES if name in run.columns},
        "curves": {name: _rounded(thin(run, name)) for name in shown if name in run.columns},
        "policySteps": _rounded(thin(run, "env_steps", POLICY_POINTS), 7),
        "leaderReturn": _rounded(thin(run, leader, POLICY_POINTS), 4) if followers else [],
        "followerReturns": [_rounded(thin(run, name, POLICY_POINTS), 4) for name in followers],
        "followerNames": [f"{_follower(run)} {name.removeprefix('return/policy_')}" for name in followers],
        "kl": _maps(run),
        "throughput": throughput(run),
    }


def _evaluation(run: Run) -> dict[str, Any] | None:
    """Figures of every policy, by their names in training: `return/leader` of policy 2 is its own return."""
    found = run.evaluation
    if found is None:
        return None
    modes = {
        mode: [
            {f"{name}/leader": _short(value, 7) for name, value in found.scores.get((policy, mode), {}).items()}
            for policy in range(run.config.num_policies)
        ]
        for mode in ("deterministic", "sampled")
    }
    return {"leader": found.leader, "episodes": found.episodes, **modes}


def _follower(run: Run) -> str:
    return "member" if _is_population(run) else "follower"


def _is_population(run: Run) -> bool:
    """Whether its policies are judged against each other, and whichever is best leads."""
    return "objective/policy_0" in run.columns


def _maps(run: Run) -> dict[str, Any]:
    """KL matrices, flattened row by row."""
    return {
        "steps": [line["env_steps"] for line in run.distances],
        "maps": [_rounded(line["kl"].ravel(), 3) for line in run.distances],
    }


def throughput(run: Run) -> dict[str, Any]:
    """Median environment steps per second, and the mean seconds of each part of an iteration."""
    parts = {name.removeprefix("time/"): column for name, column in run.columns.items() if name.startswith("time/")}
    # The median leaves out iterations that compiled kernels or shared the machine; parts have means, since diagnostics
    # take no time in most iterations.
    means = {name: float(np.nanmean(column)) for name, column in parts.items() if np.isfinite(column).any()}
    rates = run.columns.get("fps/total", np.array([math.nan]))
    known = rates[np.isfinite(rates)]
    return {"rate": _finite(float(np.median(known)) if len(known) else math.nan), "parts": means}


def settings_table(contents: Contents, task: str) -> dict[str, Any]:
    """The settings in which the methods of one task differ: a row per setting, a column per method."""
    columns = [(method, method.on(task)) for method in contents.methods if method.on(task)]
    runs = [run for _, group in columns for run in group]
    rows = [
        [name, *(_common([run.settings.get(name) for run in group]) for _, group in columns)]
        for name in differing(runs)
        if name not in DIFFERS_BY_RUN
    ]
    machines = dict.fromkeys(name for run in runs for name in run.machine)
    rows += [
        [name, *(_common([run.machine.get(name) for run in group]) for _, group in columns)]
        for name in machines
        if len({worded(run.machine.get(name)) for run in runs}) > 1
    ]
    return {"task": task, "methods": [method.name for method, _ in columns], "rows": rows}


def merged_settings(contents: Contents) -> list[dict[str, Any]]:
    """The tables of all tasks, those of equal content as one that names its tasks."""
    merged: dict[str, dict[str, Any]] = {}
    for task in contents.tasks:
        table = settings_table(contents, task)
        key = repr((table["methods"], table["rows"]))
        merged.setdefault(key, {"tasks": [], "methods": table["methods"], "rows": table["rows"]})["tasks"].append(task)
    return list(merged.values())


def _common(values: Sequence[Any]) -> str:
    """The value that all runs share, or a list of their values."""
    return ", ".join(dict.fromkeys(map(worded, values)))


def _rounded(column: np.ndarray, digits: int = 5) -> list[float | None]:
    """Numbers rounded to `digits`; None for what is not finite."""
    return [None if not math.isfinite(x) else _short(x, digits) for x in column.tolist()]


def _short(value: float, digits: int) -> float | int:
    """`value` rounded to `digits` significant digits; an integer stays one."""
    rounded = float(f"{value:.{digits}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
