"""The page: one HTML file with data, styles and scripts inlined. It shows what is computed here, and loads nothing."""

import base64
import gzip
import html
import itertools
import json
import math
import os
import re
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from echelon.console.wording import figure
from echelon.errors import UserError, is_installed
from echelon.report.comparison import aggregates, headline, improvements
from echelon.report.contents import Contents
from echelon.report.methods import COLOURS, DARK_COLOURS, differing, looks, worded
from echelon.report.reading import Run
from echelon.report.statistics import GRID_POINTS, thin
from echelon.runs.metrics import jsonable
from echelon.runs.replays import embedded, read_replay, replay_json, replay_path, viewer_script

AXES = ("env_steps", "wall_s", "gradient_steps")
MAX_REPLAYS, MAX_REPLAY_BYTES = 6, 20_000_000
"""Largest number and total size of the recorded episodes in one page."""
MAX_CURVES = 500
"""Metrics that are drawn: a run logs about a hundred."""
OF_POLICY = re.compile(r"(.+)/policy_(\d+)")
DIFFERS_BY_RUN = ("task", "seed", "out", "variant")
"""Settings that name the run or the method, left out of the tables of differences."""


def page(contents: Contents, again: float | None = None) -> str:
    """The page as HTML; in a browser it looks for a newer one every `again` seconds."""
    folder = files("echelon.report") / "page"
    replays = find_replays(contents)
    grounds = enumerate(zip(COLOURS, DARK_COLOURS, strict=True))
    colours = " ".join(f"--c{i}: light-dark({light}, {dark});" for i, (light, dark) in grounds)
    data = json.dumps(jsonable(payload(contents) | {"again": again}, digits=6), separators=(",", ":"), allow_nan=False)
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
    summary, say = _single(contents) if len(contents.runs) == 1 else headline(contents), without_places(contents)
    return {
        "summary": summary.replace(" = ", "\u00a0=\u00a0"),
        "score": contents.score,
        "tasks": contents.tasks,
        "methods": {name: look._asdict() for name, look in looks(contents.methods).items()},
        "runs": [_run(run, method.name, contents.score, say) for method in contents.methods for run in method.runs],
        "problems": [[say(path), say(sentence)] for path, sentence in contents.problems.items()],
        "curves": [*_curves(contents)],
        "basis": {task: contents.basis_words(task) for task in contents.tasks},
        "scores": [*contents.cells.values()],
        "aggregates": aggregates(contents),
        "improvements": improvements(contents),
        "maps": [*_maps(contents)],
        "speed": [*_speed(contents)],
        "settings": settings_tables(contents, say),
    }


def without_places(contents: Contents) -> Callable[[str], str]:
    """Take the folders that the runs lie in, and the user's home, out of a text: a page may be published."""
    paths = [*(run.path for run in contents.runs), *map(Path, contents.problems)]
    folders = {folder for path in paths for folder in (path.parent, path.resolve().parent) if folder.is_absolute()}
    places = {f"{folder}/": "" for folder in folders if len(folder.parts) > 1}
    places |= {home: "~"} if len(home := os.path.expanduser("~")) > 1 else {}

    def say(text: str) -> str:
        for place in sorted(places, key=len, reverse=True):
            text = text.replace(place, places[place])
        return text

    return say


def _run(run: Run, method: str, score: str, say: Callable[[str], str]) -> dict[str, Any]:
    """The data of one run: what it is and scores, and the curves of its policies by metric."""
    policies, by_policy = range(run.config.num_policies), dict[str, list[Any]]()
    for found in filter(None, map(OF_POLICY.fullmatch, run.columns if len(policies) > 1 else ())):
        by_policy.setdefault(found[1], []).append(thin(run.columns[found[0]], GRID_POINTS))
    modes, changed = ("deterministic", "sampled"), run.robustness
    judged = {mode: [run.evaluated(score, policy, mode) for policy in policies if run.evaluation] for mode in modes}
    return {
        **{name: getattr(run, name) for name in ("name", "task", "finished", "env_steps", "shown")},
        **judged,
        "played": run.shown and is_installed("mujoco.studio"),
        "notes": [*map(say, run.notes)],
        "path": say(str(run.path)),
        "source": say(run.source),
        "method": method,
        "seed": run.config.seed,
        "policies": len(policies),
        "population": "objective/policy_0" in run.columns,  # judged against each other; whichever is best leads
        "leader": run.evaluation.leader if run.evaluation else 0,
        "seconds": run.columns["wall_s"][-1] if "wall_s" in run.columns else None,
        "training": run.final(score),
        "trained": [run.final(f"return/policy_{policy}") for policy in policies],
        "x": thin(run.columns["env_steps"], GRID_POINTS),
        "by_policy": by_policy,
        "robustness": changed and {**vars(changed), "means": [*map(changed.mean, policies)], "best": changed.best},
    }


def _curves(contents: Contents) -> Iterator[dict[str, Any]]:
    """Every metric of every task against its axes: statistics per method, and the runs they are of."""
    names = dict.fromkeys(name for run in contents.runs for name in (*run.leader_metrics, *sorted(run.columns)))
    metrics = [name for name in names if name not in (*AXES, "iteration") and not OF_POLICY.fullmatch(name)]
    for task, metric, axis in itertools.product(contents.tasks, metrics[:MAX_CURVES], AXES):
        wanted = axis == "env_steps" or metric.endswith("/leader")
        if wanted and (found := contents.bands(task, metric, axis)):
            lines = [{**vars(band), "method": method, "x": None} for method, band in found.items()]
            lines = [line if len(line["single"]) > 1 else {**line, "single": {}} for line in lines]
            grid, marks = next(iter(found.values())).x, contents.marks(task, metric)
            yield {"task": task, "metric": metric, "axis": axis, "x": grid, "lines": lines, "marks": marks}


def _maps(contents: Contents) -> Iterator[dict[str, Any]]:
    """KL matrices over training, of every run, and their mean over the seeds of a method."""
    for task, method in itertools.product(contents.tasks, contents.methods):
        runs = contents.mapped(method, task)
        for run in (*runs, None) if len(runs) > 1 else runs:
            steps = [line["env_steps"] for line in (run or runs[0]).distances]
            maps = [np.mean([newest_map(one, at) for one in ([run] if run else runs)], axis=0) for at in steps]
            seed, name = (run.config.seed, run.name) if run else ("mean", None)
            yield {"task": task, "method": method.name, "seed": seed, "run": name, "steps": steps, "maps": maps}


def newest_map(run: Run, steps: float) -> np.ndarray:
    """The last KL matrix that was measured by then, at least the first."""
    return next((line["kl"] for line in reversed(run.distances) if line["env_steps"] <= steps), run.distances[0]["kl"])


def _speed(contents: Contents) -> Iterator[dict[str, Any]]:
    """Seconds of an iteration by part and environment steps per second, a row per task and method."""
    for task, method in itertools.product(contents.tasks, contents.methods):
        runs = method.on(task)
        parts = {part: [run.seconds.get(part, math.nan) for run in runs] for run in runs for part in run.seconds}
        known = [run.known("fps/total") for run in runs]
        rates = [np.median(fps[len(fps) // 2 :]) for fps in known if len(fps)]  # the first compile, or fill a replay
        if parts or rates:
            means = {part: float(np.nanmean(seconds)) for part, seconds in parts.items()}
            yield {"task": task, "method": method.name, "rate": np.median(rates) if rates else None, "parts": means}


def settings_tables(contents: Contents, say: Callable[[str], str]) -> list[dict[str, Any]]:
    """Settings and machines in which the methods of a task differ; tasks with equal tables share one."""
    merged: dict[str, dict[str, Any]] = {}
    for task in contents.tasks:
        columns = {method.name: method.on(task) for method in contents.methods if method.on(task)}
        runs = [run for group in columns.values() for run in group]
        names = [name for name in differing(runs) if name not in DIFFERS_BY_RUN] + differing(runs, "machine")

        def shared(name: str, group: list[Run]) -> str:
            return say(", ".join(dict.fromkeys(worded((run.machine | run.settings).get(name)) for run in group)))

        rows = [[say(name), *(shared(name, group) for group in columns.values())] for name in names]
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
    trained = f"{contents.methods[0].name} on {run.task}, seed {run.config.seed}, {state}. In training its leader ends "
    trained += f"at a {contents.score_name} of {figure(run.final(score))}"
    if run.evaluation is None:
        return f"{trained}; training returns lag behind, so evaluate it to know what it can do."
    best, sampled = figure(run.evaluated(score)), figure(run.evaluated(score, mode="sampled"))
    episodes = f"evaluated over {run.evaluation.scores[0].episodes} episodes it scores"
    return f"{trained}; {episodes} {best} with deterministic and {sampled} with sampled actions."


def find_replays(contents: Contents) -> dict[str, str]:
    """Recorded episodes as JSON, by the names of their runs. A damaged one becomes a note on its run."""
    found: dict[str, str] = {}
    for run in best_runs(contents, lambda run: replay_path(run.path).exists()):
        try:
            text = replay_json(read_replay(replay_path(run.path)))
        except UserError as error:
            run.notes += [str(error)] if str(error) not in run.notes else []  # a page may be written again
            continue
        if len(found) < MAX_REPLAYS and sum(map(len, found.values())) + len(text) <= MAX_REPLAY_BYTES:
            found[run.name] = text
    return found


def best_runs(contents: Contents, among: Callable[[Run], bool]) -> list[Run]:
    """The best run of each method and task that passes `among`; first the best of each task, then the second."""

    def score(run: Run) -> float:
        return float(np.nan_to_num(run.final(contents.score), nan=-math.inf))

    ranked: list[tuple[int, Run]] = []
    for task in contents.tasks:
        groups = [[run for run in method.on(task) if among(run)] for method in contents.methods]
        ranked += enumerate(sorted((max(group, key=score) for group in groups if group), key=score, reverse=True))
    return [run for _, run in sorted(ranked, key=lambda item: item[0])]
