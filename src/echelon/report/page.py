"""The page: one HTML file with data, styles and scripts inlined, no file loaded from elsewhere. It shows and
hides what is computed here."""

import base64
import gzip
import html
import itertools
import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass, replace
from importlib.resources import files
from typing import Any

import numpy as np

from echelon.console.wording import figure
from echelon.errors import UserError
from echelon.report.comparison import (
    aggregates,
    contested,
    headline,
    improvements,
    interval_of,
    score_table,
)
from echelon.report.contents import Contents, curve, mapped_runs
from echelon.report.curves import common_grid, on_grid, summary, thin
from echelon.report.methods import differing, find_sweeps, worded
from echelon.report.palette import COLOURS, DARK_COLOURS, DASHES, looks
from echelon.report.reading import Run
from echelon.report.statistics import MIN_SEEDS, sample
from echelon.runs.replays import embedded, read_replay, replay_json, replay_path, viewer_script

AXES = ("env_steps", "wall_s", "gradient_steps")
POINTS = 150
"""Points of a curve in the page."""
MOMENTS = 20
"""Steps at which scores can be compared before the end."""
MAX_REPLAYS, MAX_REPLAY_BYTES = 6, 2_000_000
"""Largest number and total size of the recorded episodes in one page."""
OF_POLICY = re.compile(r"(.+)/policy_(\d+)")
DIFFERS_BY_RUN = ("task", "seed", "out", "variant")
"""Settings that name the run or the method, left out of the tables of differences."""


def page(contents: Contents, again: float | None = None) -> str:
    """The page as HTML; in a browser it looks for a newer one every `again` seconds."""
    folder = files("echelon.report") / "page"
    replays = find_replays(contents)
    grounds = enumerate(zip(COLOURS, DARK_COLOURS, strict=True))
    colours = " ".join(f"--c{i}: light-dark({light}, {dark});" for i, (light, dark) in grounds)
    data = json.dumps(plain(payload(contents) | {"again": again}), separators=(",", ":"), allow_nan=False)
    scripts = [(folder / f"{name}.js").read_text() for name in ("uplot.bundle", "core", "charts", "sections")]
    styles = [(folder / f"{name}.css").read_text() for name in ("uplot.bundle", "style")]
    parts = {
        "HEADING": html.escape(_heading(contents)),
        "STYLE": "".join((*styles, f":root {{ {colours} }}\n")),
        "DATA": base64.b64encode(gzip.compress(data.encode(), mtime=0)).decode(),
        "REPLAYS": embedded(f"{{{','.join(f'{json.dumps(run)}:{text}' for run, text in replays.items())}}}"),
        "PLAYER": _script(viewer_script()) if replays else "",
        "SCRIPT": _script("\n".join(scripts)),
    }
    return re.sub(r"<!--@(\w+)@-->", lambda found: parts[found[1]], (folder / "index.html").read_text())


def _script(text: str) -> str:
    """JavaScript that cannot end its element: `</` occurs only in strings and comments, where `<\\/` means the same."""
    return text.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def payload(contents: Contents) -> dict[str, Any]:
    """All data of the page; methods, tasks and runs by name."""
    alone, longest = len(contents.runs) == 1, max(run.env_steps for run in contents.runs)
    moments = [contents, *(replace(contents, at=longest * k / MOMENTS, _known={}) for k in range(MOMENTS - 1, 0, -1))]
    return {
        "summary": (_single(contents) if alone else headline(contents)).replace(" = ", "\u00a0=\u00a0"),
        "score": contents.score,
        "tasks": contents.tasks,
        "methods": {
            method.name: {"colour": look.colour, "dash": DASHES[look.dash]}
            for method, look in zip(contents.methods, looks(contents.methods), strict=True)
        },
        "runs": [_run(run, method.name, contents.score) for method in contents.methods for run in method.runs],
        "problems": [[problem.path, problem.sentence] for problem in contents.problems],
        "curves": list(_curves(contents)),
        "scores": [
            {"steps": one.at, "basis": {task: one.basis_words(task) for task in one.tasks}, "cells": score_table(one)}
            for one in (moments[:1] if alone else moments)
        ],
        "aggregates": _aggregates(contents),
        "improvements": improvements(contents),
        "sweeps": list(_sweeps(contents)),
        "maps": list(_maps(contents)),
        "speed": list(_speed(contents)),
        "settings": settings_tables(contents),
    }


def _run(run: Run, method: str, score: str) -> dict[str, Any]:
    """The data of one run: what it is and scores, and the curves of its policies by metric."""
    names = [found for name in run.columns if (found := OF_POLICY.fullmatch(name)) and run.config.num_policies > 1]
    policies = range(run.config.num_policies)
    by_policy = {found[1]: [] for found in names}
    for found in names:
        by_policy[found[1]].append(thin(run.columns[found[0]], POINTS))
    known = {name: getattr(run, name) for name in ("name", "task", "finished", "env_steps", "notes")}
    return known | {
        "path": str(run.path),
        "method": method,
        "seed": run.config.seed,
        "policies": len(policies),
        "population": "objective/policy_0" in run.columns,  # judged against each other; whichever is best leads
        "leader": run.evaluation.leader if run.evaluation else 0,
        "seconds": run.columns["wall_s"][-1] if "wall_s" in run.columns else math.nan,
        "training": run.final(score),
        "trained": [run.final(f"return/policy_{policy}") for policy in policies],
        "deterministic": [run.evaluated(score, policy) for policy in policies] if run.evaluation else [],
        "sampled": [run.evaluated(score, policy, "sampled") for policy in policies] if run.evaluation else [],
        "x": thin(run.columns["env_steps"], POINTS),
        "by_policy": by_policy,
    }


def _curves(contents: Contents) -> Iterator[dict[str, Any]]:
    """Every metric of every task against its axes: statistics per method, and the runs they are of, at common places.
    The score has its IQM with an interval too; resampling every metric would take minutes."""
    names = dict.fromkeys(name for run in contents.runs for name in (*run.leader_metrics, *sorted(run.columns)))
    metrics = [name for name in names if name not in (*AXES, "iteration") and not OF_POLICY.fullmatch(name)]
    for task, metric, axis in itertools.product(contents.tasks, metrics, AXES):
        if axis != "env_steps" and not metric.endswith("/leader"):
            continue
        groups = {method.name: contents.counted(method, task) for method in contents.methods}
        runs = [run for group in groups.values() for run in group if metric in run.columns and axis in run.columns]
        known = {run.name: curve(run, axis, metric) for run in runs}
        grid = common_grid([*known.values()], POINTS)
        if grid is None:
            continue
        lines = []
        for name, group in groups.items():
            single = {run.name: on_grid(known[run.name], grid) for run in group if run.name in known}
            if single:
                found = summary(grid, np.array([*single.values()]), MIN_SEEDS if metric == contents.score else 1 << 30)
                lines.append({"method": name, **vars(found), "x": None, "single": single if len(single) > 1 else {}})
        sizes = {run.config.num_policies for run in runs if metric == "adversary/loss"}
        marks = [[math.log(size), f"ln {size}: a blind guess"] for size in sizes]
        yield {"task": task, "metric": metric, "axis": axis, "x": grid, "lines": lines, "marks": marks}


def _aggregates(contents: Contents) -> dict[str, Any]:
    """Normalised scores over all contested tasks, and their performance profiles at common levels."""
    found = aggregates(contents)
    if len(contested(contents)) < 2 or len(found) < 2:
        return {"methods": []}
    ends = [end for one in found for end in (0.0, 1.0, one.iqm, *one.interval) if math.isfinite(end)]
    levels = np.linspace(min(ends), max(ends), 101)
    lines = [
        {"method": one.method, "iqm": one.iqm, "interval": one.interval, "profile": one.profile(levels)}
        for one in found
    ]
    return {"methods": lines, "levels": levels}


def _sweeps(contents: Contents) -> Iterator[dict[str, Any]]:
    """Mean score and its 95 % interval at every value of a setting."""
    for sweep in (sweep for task in contents.tasks for sweep in find_sweeps(contents.methods, task)):
        scores = [(value, contents.scores(method, sweep.task)) for value, method in sweep.points]
        points = [
            [value, *sample(found), *interval_of(contents, [found], statistic=lambda drawn: drawn.mean(axis=-1))]
            for value, found in scores
            if found
        ]
        if len(points) > 1:
            yield {"task": sweep.task, "setting": sweep.setting, "points": points}


def _maps(contents: Contents) -> Iterator[dict[str, Any]]:
    """KL matrices over training, of every run, and their mean over the seeds of a method."""
    for task, method in itertools.product(contents.tasks, contents.methods):
        runs = mapped_runs(contents, method, task)
        for run in (*runs, None) if len(runs) > 1 else runs:
            steps = [line["env_steps"] for line in (run or runs[0]).distances]
            maps = [np.mean([newest_map(one, at) for one in ([run] if run else runs)], axis=0) for at in steps]
            seed, name = (run.config.seed, run.name) if run else ("mean", None)
            yield {"task": task, "method": method.name, "seed": seed, "run": name, "steps": steps, "maps": maps}


def newest_map(run: Run, steps: float) -> np.ndarray:
    """The last KL matrix that was measured by then, at least the first."""
    return next((line["kl"] for line in reversed(run.distances) if line["env_steps"] <= steps), run.distances[0]["kl"])


def throughput(run: Run) -> tuple[float, dict[str, float]]:
    """Median environment steps per second, and the mean seconds of each part of an iteration. The median leaves out
    iterations that compiled kernels; parts have means, since diagnostics take no time in most iterations."""
    parts = {name.removeprefix("time/"): column for name, column in run.columns.items() if name.startswith("time/")}
    means = {name: float(np.nanmean(column)) for name, column in parts.items() if np.isfinite(column).any()}
    rates = run.columns.get("fps/total", np.array([]))
    rates = rates[np.isfinite(rates)]
    return float(np.median(rates)) if len(rates) else math.nan, means


def _speed(contents: Contents) -> Iterator[dict[str, Any]]:
    """Steps per second and seconds of an iteration by part, a row per task and method."""
    for task, method in itertools.product(contents.tasks, contents.methods):
        found = [throughput(run) for run in method.on(task)]
        parts = dict.fromkeys(part for _, means in found for part in means)
        means = {part: float(np.mean([m[part] for _, m in found if part in m])) for part in parts}
        rates = [rate for rate, _ in found if math.isfinite(rate)]
        if means or rates:
            rate = float(np.median(rates)) if rates else math.nan
            yield {"task": task, "method": method.name, "rate": rate, "parts": means}


def settings_tables(contents: Contents) -> list[dict[str, Any]]:
    """Settings and machines in which the methods of a task differ; tasks with equal tables share one."""
    merged: dict[str, dict[str, Any]] = {}
    for task in contents.tasks:
        columns = {method.name: method.on(task) for method in contents.methods if method.on(task)}
        runs = [run for group in columns.values() for run in group]
        names = [name for name in differing(runs) if name not in DIFFERS_BY_RUN]
        names += differing(runs, "machine")

        def shared(name: str, group: list[Run]) -> str:
            return ", ".join(dict.fromkeys(worded((run.machine | run.settings).get(name)) for run in group))

        rows = [[name, *(shared(name, group) for group in columns.values())] for name in names]
        table = {"tasks": [], "methods": [*columns], "rows": rows}
        merged.setdefault(repr((table["methods"], rows)), table)["tasks"].append(task)
    return [table for table in merged.values() if table["rows"]]


def _heading(contents: Contents) -> str:
    """The page's title."""
    if len(contents.runs) == 1:
        return contents.runs[0].name
    methods = " · ".join(method.name for method in contents.methods) if len(contents.methods) <= 6 else "Comparison"
    return f"{methods} on {contents.tasks[0] if len(contents.tasks) == 1 else f'{len(contents.tasks)} tasks'}"


def _single(contents: Contents) -> str:
    """The result of a single run in a sentence."""
    (run,), score = contents.runs, contents.score
    state = f"{run.iterations:,} iterations" if run.finished else f"unfinished after {run.iterations:,} iterations"
    trained = (
        f"{contents.methods[0].name} on {run.task}, seed {run.config.seed}, {state}. In training its leader ends at "
    )
    trained += f"a {contents.score_name} of {figure(run.final(score))}"
    if run.evaluation is None:
        return f"{trained}; training returns lag behind, so evaluate it to know what it can do."
    best, sampled = figure(run.evaluated(score)), figure(run.evaluated(score, mode="sampled"))
    episodes = f"evaluated over {run.evaluation.episodes} episodes it scores"
    return f"{trained}; {episodes} {best} with deterministic and {sampled} with sampled actions."


def plain(value: Any) -> Any:
    """A value for JSON: numbers with five significant digits, seven if they stand alone, None for NaN."""
    if isinstance(value, np.ndarray):
        return [plain(part) for part in value] if value.ndim > 1 else [_short(x, 5) for x in value.tolist()]
    if is_dataclass(value):
        return {name: plain(part) for name, part in vars(value).items()}
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return _short(float(value), 7) if isinstance(value, float) else value


def _short(value: float, digits: int) -> float | int | None:
    rounded = float(f"{value:.{digits}g}") if math.isfinite(value) else math.nan
    return None if math.isnan(rounded) else int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


def find_replays(contents: Contents) -> dict[str, str]:
    """Recorded episodes as JSON, by the names of their runs. A damaged one becomes a note on its run."""
    found: dict[str, str] = {}
    for run in best_runs(contents, lambda run: replay_path(run.path).exists()):
        try:
            text = replay_json(read_replay(replay_path(run.path)))
        except UserError as error:
            run.notes.append(str(error))
            continue
        if len(found) < MAX_REPLAYS and sum(map(len, found.values())) + len(text) <= MAX_REPLAY_BYTES:
            found[run.name] = text
    return found


def best_runs(contents: Contents, among: Callable[[Run], bool]) -> list[Run]:
    """The best run of each method and task that passes `among`; first the best of each task, then the second."""

    def score(run: Run) -> float:
        final = run.final(contents.score)
        return final if math.isfinite(final) else -math.inf

    ranked: list[tuple[int, Run]] = []
    for task in contents.tasks:
        groups = [[run for run in method.on(task) if among(run)] for method in contents.methods]
        ranked += enumerate(sorted((max(group, key=score) for group in groups if group), key=score, reverse=True))
    return [run for _, run in sorted(ranked, key=lambda item: item[0])]
