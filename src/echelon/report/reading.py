"""Reading run folders for a report: each becomes a `Run`, or a sentence says why not. No simulator is imported, and
runs of unknown tasks can be read."""

import math
import os
import re
import warnings
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from echelon.config import TrainConfig
from echelon.config.checks import settings_of
from echelon.errors import UserError, first_line
from echelon.report.statistics import Curve, thin
from echelon.runs.changes import described
from echelon.runs.evaluations import Evaluation, Robustness, read_evaluation, read_robustness
from echelon.runs.folder import CONFIG, PRUNED, RunFolder, read_config
from echelon.runs.metrics import MAX_WARNINGS, Column, read_columns, read_matrices
from echelon.runs.untrusted import Unreadable, require_inside

REPORT = "index.html"
"""The page. A folder that holds one is a report, not a run."""
FINAL_SHARE = 0.05
"""A run's final score is the mean over this last share of its iterations, at least one."""
SLOW = 3.0
"""Times the median of the last half of the iterations beyond which one is not a usual one. Many of the first may take
next to no time, where a replay fills before anything learns."""
MAX_KL_MAPS = 61
"""KL maps of a run in the report: an odd number, so that the first, the middle and the last are among them."""


@dataclass
class Run:
    """One run folder, read."""

    name: str
    """The folder's name, with as much of its path as needed to be unique."""
    path: Path
    config: TrainConfig
    settings: dict[str, Any]
    """Every setting by its dotted name, the task's own among them."""
    machine: dict[str, Any]
    """Hardware and versions of the last session."""
    columns: dict[str, Column]
    """Metrics `[lines]` by name, NaN where a line has none."""
    distances: list[dict[str, Any]]
    """KL matrices `[M, M]` with the steps at which they were measured, oldest first: `MAX_KL_MAPS` at most."""
    notes: list[str] = field(default_factory=list)
    colour: int | None = None
    """Its algorithm's place in the palette, if that has one."""
    evaluation: Evaluation | None = None
    """Scores of its last iteration."""
    robustness: Robustness | None = None
    """The same in changed physics."""
    source: str = ""
    """The task as commands name it, if the run says how its environment is made."""
    shown: bool = True
    """Whether its policies can be watched."""

    @property
    def task(self) -> str:
        return self.config.task

    @property
    def iterations(self) -> int:
        """Iterations done."""
        return int(self.columns["iteration"][-1])

    @property
    def finished(self) -> bool:
        """Whether all iterations of its config are done."""
        return self.iterations >= self.config.num_iterations

    @property
    def env_steps(self) -> float:
        """Environment steps taken."""
        return float(self.columns["env_steps"][-1])

    @property
    def leader_metrics(self) -> list[str]:
        """Logged metrics of the leader's episodes in training, the return first."""
        names = (name for name in self.columns if name.endswith("/leader") and name != "evaluated/leader")
        return sorted(names, key=lambda name: name != "return/leader")

    @property
    def seconds(self) -> dict[str, float]:
        """Mean seconds of each part of an iteration, since diagnostics take no time in most. The first iterations of
        every start, which compile and so take many times as long, do not count."""
        parts = {name.removeprefix("time/"): x for name, x in self.columns.items() if name.startswith("time/")}
        zero = np.zeros(len(self.columns["iteration"]))
        busy = sum((np.nan_to_num(x) for part, x in parts.items() if part != "diagnostics"), zero)
        usual = busy <= SLOW * np.median(busy[len(busy) // 2 :])
        known = {part: x[usual & np.isfinite(x)] for part, x in parts.items()}
        return {part: float(x.mean()) for part, x in known.items() if len(x)}

    def known(self, metric: str) -> Column:
        """The finite values of a metric; none if it was not logged."""
        column = self.columns.get(metric, np.empty(0))
        return column[np.isfinite(column)]

    def curve(self, metric: str, axis: str = "env_steps") -> Curve:
        """A metric against an axis, thinned."""
        return thin(self.columns[axis]), thin(self.columns[metric])

    def evaluated(self, metric: str, policy: int | None = None, mode: str = "deterministic") -> float:
        """A figure of its evaluation; NaN if it has none."""
        return self.evaluation.of(metric, policy, mode) if self.evaluation else math.nan

    def final(self, metric: str) -> float:
        """Mean of a metric over the last part of the run; NaN if it was not logged there."""
        column = self.columns.get(metric, self.columns["iteration"] * math.nan)
        last = column[self.columns["iteration"] > self.iterations - max(1, round(self.iterations * FINAL_SHARE))]
        last = last[np.isfinite(last)]
        return float(last.mean()) if len(last) else math.nan


def find_runs(paths: Iterable[str | Path]) -> list[Path]:
    """Folders to read: each path itself, or if it is a folder of runs, the runs directly inside it."""
    found: list[Path] = []
    for path in map(Path, paths):
        if not os.path.exists(path):  # unlike `path.exists`, it takes a name that is too long
            RunFolder.open(path)  # raises a `UserError` that suggests the nearest name
        inside = []
        if path.is_dir() and not (path / CONFIG).exists():
            marks = (CONFIG, "metrics.jsonl", "checkpoints")  # of runs and incomplete runs
            inside = sorted(entry for entry in path.iterdir() if any((entry / mark).exists() for mark in marks))
        if not (path / REPORT).exists() or inside:
            found += inside or [path]
    return list(dict.fromkeys(found))


def read_runs(paths: Iterable[Path]) -> tuple[list[Run], dict[str, str]]:
    """All runs that can be read, and what is wrong with the others, by path."""
    runs: list[Run] = []
    problems: dict[str, str] = {}
    for path in paths:
        try:
            runs.append(read_run(path))
        except (UserError, Unreadable) as error:
            problems[str(path)] = str(error)
        except Exception as error:  # folders are untrusted: a bad one must not stop the report
            problems[str(path)] = f"it cannot be read ({type(error).__name__}: {first_line(error)})"
    for depth in range(2, 20):  # parent folders tell equal names apart
        counts = Counter(run.name for run in runs)
        for run in runs:
            if counts[run.name] > 1:
                run.name = "/".join(run.path.resolve().parts[-depth:])
    return runs, problems


def read_run(path: Path) -> Run:
    """Read one run. Raises a `UserError` if there is nothing to show."""
    if not path.is_dir():
        raise UserError("it is a file, not a run folder")
    if not (path / CONFIG).is_file():
        raise UserError(f"it is not a run folder: it has no {CONFIG}" if any(path.iterdir()) else "it is empty")
    require_inside(path)
    config, document = read_config(path, f"its {CONFIG}")
    folder = RunFolder(path, config)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        columns = read_columns(path, lambda name: True)
        distances, damaged = read_matrices(folder)
    if not columns:
        raise UserError("it has a config but no metrics yet")
    columns.setdefault("env_steps", columns["iteration"])
    known = np.isfinite(columns["env_steps"])
    if not known.any():
        raise UserError("no line of its metrics says how many environment steps were taken")
    columns = {name: column[known] for name, column in columns.items()}
    last, kept = len(distances) - 1, min(len(distances), MAX_KL_MAPS)
    spread = [distances[round(i * last / max(1, kept - 1))] for i in range(kept)]
    settings = settings_of(config) | settings_of(document["config"])
    run = Run(folder.name, path, config, settings, _machine(document), columns, spread, colour=document["colour"])
    run.source, run.shown = folder.source, document["shown"]
    try:
        found = read_evaluation(path)
        if found and found.iteration == run.iterations:
            run.evaluation = found
        elif found:
            run.notes.append("evaluated, but not at its end, so not scored by that")
        changed = read_robustness(path)
        if changed and (changed.iteration, len(changed.plain)) == (run.iterations, config.num_policies):
            run.robustness = changed
    except UserError as error:
        run.notes.append(str(error))
    for number, what in (
        (len(warned), f"{'or more ' if len(warned) == MAX_WARNINGS else ''}damaged lines of metrics.jsonl"),
        (np.sum(~known), "lines of metrics.jsonl without environment steps"),
        (damaged, "damaged lines of kl.jsonl"),
    ):
        run.notes += [f"{number} {what} were skipped"] if number else []
    if (path / PRUNED).is_file():
        with (path / PRUNED).open(errors="replace") as file:
            run.notes.append(file.read(200))
    elif not run.finished:
        run.notes.append(f"unfinished: {run.iterations:,} of {config.num_iterations:,} iterations")
    run.notes += [f"changed while it was trained: {described(change)}" for change in document["changes"]]
    return run


def _machine(document: dict[str, Any]) -> dict[str, Any]:
    """Hardware and versions of the last session, as far as they were stored."""
    last = document["sessions"][-1] if document["sessions"] else {}
    hardware, versions = (x if isinstance(x := last.get(name), dict) else {} for name in ("hardware", "versions"))
    revision = re.sub(r"^([0-9a-f]{10})[0-9a-f]*", r"\1", str(last.get("git_revision") or ""))
    device = {"device": hardware.get("gpu") or hardware.get("cpu"), "cores": hardware.get("cores")}
    return device | {"revision": revision or None} | {f"{name} version": what for name, what in versions.items()}
