"""Reading run folders for a report: each becomes a `Run`, or a `Problem` that says why not.

The task's settings stay plain data, so that no simulator has to be imported, and runs of unknown tasks can be read.
"""

import json
import math
import re
import warnings
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np

from echelon.config import TrainConfig, from_dict
from echelon.config.checks import check_ranges, settings_of
from echelon.errors import UserError, first_line
from echelon.runs.changes import described, stored_changes
from echelon.runs.distances import read_distances
from echelon.runs.folder import CONFIG, RunFolder
from echelon.runs.metrics import Column, read_columns

REPORT = "report.html"
"""The page. A folder that holds one is a report, not a run."""

FINAL_SHARE = 0.05
"""A run's final score is the mean over this last share of its iterations, at least one."""

MAX_KL_MAPS = 61
"""KL maps of a run in the report."""

PARALLEL_FROM = 12
"""Number of runs from which on reading them in several processes saves time."""
PARALLEL_FROM_BYTES = 50_000_000
"""The same of their metrics: a run of 100,000 iterations has as many."""

REPORTED_METRICS = re.compile(
    r"iteration|env_steps|gradient_steps|wall_s|fps/total|time/[^/]+|[^/]+/leader|(return|objective)/policy_\d+"
    r"|ess|is_deviation|kl/follower_to_leader|nearest_is_leader|adversary/(loss|accuracy)"
)
"""Metrics that a report shows. All others are in `metrics.jsonl` and TensorBoard."""


@dataclass(frozen=True)
class Problem:
    """A folder that is not in the report, and why."""

    path: str
    sentence: str


@dataclass(frozen=True)
class Evaluated:
    """What `echelon evaluate` found at the end of a run: episodes counted once, all policies from the same starts."""

    leader: int
    episodes: int
    """Per policy and way of acting."""
    scores: dict[tuple[int, str], dict[str, float]]
    """By policy and way of acting: `return`, and the task's own figures by name."""

    def of(self, metric: str, policy: int | None = None, mode: str = "deterministic") -> float:
        """A figure of the leader or of another policy; `metric` is its name in training, `NAME/leader`."""
        found = self.scores.get((self.leader if policy is None else policy, mode), {})
        return found.get(metric.removesuffix("/leader"), math.nan)


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
    evaluation: Evaluated | None = None
    """Scores of its last iteration."""

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

    def final(self, metric: str) -> float:
        """Mean of a metric over the last part of the run; NaN if it was not logged there."""
        column = self.columns.get(metric)
        if column is None:
            return math.nan
        last = column[self.columns["iteration"] > self.iterations - max(1, round(self.iterations * FINAL_SHARE))]
        last = last[np.isfinite(last)]
        return float(last.mean()) if len(last) else math.nan


def find_runs(paths: Iterable[str | Path]) -> list[Path]:
    """Folders to read: each path itself, or if it is a folder of runs, the runs directly inside it."""
    found: list[Path] = []
    for path in map(Path, paths):
        if not path.exists():
            RunFolder.open(path)  # raises a `UserError` that suggests the nearest name
        inside = [] if (path / CONFIG).exists() or not path.is_dir() else _looking_like_runs(path)
        if not (path / REPORT).exists() or inside:
            found += inside or [path]
    return list(dict.fromkeys(found))


def _looking_like_runs(path: Path) -> list[Path]:
    """Subfolders that are runs or incomplete runs."""
    marks = (CONFIG, "metrics.jsonl", "checkpoints")
    return sorted(entry for entry in path.iterdir() if any((entry / mark).exists() for mark in marks))


def read_runs(paths: Iterable[Path]) -> tuple[list[Run], list[Problem]]:
    """All runs that can be read, and what is wrong with the others."""
    found = _read_all(list(paths))
    runs = [one for one in found if isinstance(one, Run)]
    _tell_apart(runs)
    return runs, [one for one in found if isinstance(one, Problem)]


def _read_all(paths: list[Path]) -> list[Run | Problem]:
    """Read the runs, in several processes if there are many: parsing metrics takes seconds per run."""
    if len(paths) < 2 or (len(paths) < PARALLEL_FROM and sum(map(_bytes, paths)) < PARALLEL_FROM_BYTES):
        return [_read_or_name(path) for path in paths]
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        return list(pool.map(_read_or_name, paths))


def _bytes(path: Path) -> int:
    """Size of a run's metrics."""
    file = path / "metrics.jsonl"
    return file.stat().st_size if file.is_file() else 0


def _read_or_name(path: Path) -> Run | Problem:
    try:
        return read_run(path)
    except UserError as error:
        return Problem(str(path), str(error))
    except Exception as error:  # a folder may hold anything, and one of them must not cost the report of the others
        return Problem(str(path), f"it cannot be read ({type(error).__name__}: {first_line(error)})")


def read_run(path: Path) -> Run:
    """Read one run. Raises a `UserError` if there is nothing to show."""
    document = _document(path)
    config, settings = _config(path, document["config"])
    folder = RunFolder(path, config)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            columns = read_columns(folder, REPORTED_METRICS.fullmatch)
            distances = read_distances(folder)
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"its metrics cannot be read: {error}") from None
    if not columns:
        raise UserError("it has a config but no metrics yet")
    columns.setdefault("env_steps", columns["iteration"])
    known = np.isfinite(columns["env_steps"])
    if not known.any():
        raise UserError("no line of its metrics says how many environment steps were taken")
    columns = {name: column[known] for name, column in columns.items()}
    measured = [_measured(line, config.num_policies) for line in distances]
    distances = [line for line in measured if line is not None]
    damaged = len(measured) - len(distances)
    distances = _spread_evenly(distances, MAX_KL_MAPS)  # all of a long run's would slow down whatever allocates
    colour = document.get("colour") if isinstance(document.get("colour"), int) else None
    run = Run(folder.name, path, config, settings, _machine(document), columns, distances, colour=colour)
    try:
        run.evaluation = read_evaluation(folder, run.iterations)
        if run.evaluation is None and folder.evaluation.exists():
            run.notes.append("evaluated, but not at its end, so not scored by that")
    except UserError as error:
        run.notes.append(str(error))
    if warned:
        run.notes.append(f"{len(warned)} damaged lines of metrics.jsonl were skipped")
    if not known.all():
        run.notes.append(f"{np.sum(~known)} lines of metrics.jsonl without environment steps were skipped")
    if damaged:
        run.notes.append(f"{damaged} damaged lines of kl.jsonl were skipped")
    if not np.isfinite(run.columns.get("gradient_steps", np.array(math.nan))).all():
        run.columns.pop("gradient_steps", None)  # a run of an older version, perhaps resumed by this one
        run.notes.append("from before gradient steps were logged, so not among the curves over them")
    if not run.finished:
        run.notes.append(f"unfinished: {run.iterations:,} of {config.num_iterations:,} iterations")
    run.notes += [f"changed while it was trained: {described(change)}" for change in stored_changes(document)]
    return run


def read_evaluation(folder: RunFolder, iteration: int) -> Evaluated | None:
    """What `evaluation.json` says of the state after `iteration`; None if it is of another. A `UserError` if it is
    damaged."""
    if not folder.evaluation.exists():
        return None
    try:
        found = json.loads(folder.evaluation.read_text())
        scores: dict[tuple[int, str], dict[str, float]] = {}
        for one in found["scores"]:
            figures = {"return": one["return_mean"], **one["extra"]}
            known = {name: float(value) for name, value in figures.items() if value is not None}
            scores[int(one["policy"]), str(one["mode"])] = known
        evaluated = Evaluated(int(found["leader"]), int(found["scores"][0]["episodes"]), scores)
        return evaluated if found["iteration"] == iteration else None
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError):
        raise UserError("its evaluation.json is damaged; echelon evaluate writes it anew") from None


def _document(path: Path) -> dict[str, Any]:
    """The parsed `config.json`; a `UserError` if it is missing, damaged or not a run's."""
    if not path.is_dir():
        raise UserError("it is a file, not a run folder")
    if not (path / CONFIG).is_file():
        empty = not any(path.iterdir())
        raise UserError("it is empty" if empty else f"it is not a run folder: it has no {CONFIG}")
    try:
        document = json.loads((path / CONFIG).read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"its {CONFIG} cannot be read ({str(error).splitlines()[0]})") from None
    config = document.get("config") if isinstance(document, dict) else None
    if not isinstance(config, dict) or not isinstance(config.get("task"), str):
        raise UserError(f"its {CONFIG} was not written by echelon")
    return document


def _config(path: Path, stored: dict[str, Any]) -> tuple[TrainConfig, dict[str, Any]]:
    """The settings common to all tasks as a `TrainConfig`, and all settings by dotted name."""
    try:
        config = from_dict(TrainConfig(), {key: value for key, value in stored.items() if key != "env"})
        check_ranges(config)
        if config.policies is None:
            raise UserError("it has no number of policies")
    except UserError as error:
        raise UserError(f"its {CONFIG} cannot be used: {error}") from None
    return config, settings_of(config) | settings_of(stored)  # older runs lack newer settings: they had the defaults


def _machine(document: dict[str, Any]) -> dict[str, Any]:
    """Hardware and versions of the last session, as far as they were stored."""
    sessions = document.get("sessions")
    last = sessions[-1] if isinstance(sessions, list) and sessions and isinstance(sessions[-1], dict) else {}
    hardware, versions = (x if isinstance(x := last.get(name), dict) else {} for name in ("hardware", "versions"))
    revision = last.get("git_revision")
    return {
        "device": hardware.get("gpu") or hardware.get("cpu"),
        "cores": hardware.get("cores"),
        "revision": re.sub(r"^([0-9a-f]{10})[0-9a-f]*", r"\1", revision if isinstance(revision, str) else "") or None,
        **{f"{name} version": version for name, version in versions.items()},
    }


def _measured(line: dict[str, Any], policies: int) -> dict[str, Any] | None:
    """A line of `kl.jsonl` with its matrix as an array, NaN for null, which stands for a KL that is not finite; None if
    it holds no matrix of the run's size."""
    matrix, steps = line.get("kl"), line.get("env_steps")
    if not isinstance(steps, int) or not 0 <= steps < 2**53 or not isinstance(matrix, list) or len(matrix) != policies:
        return None
    if any(not isinstance(row, list) or len(row) != policies for row in matrix):
        return None
    if not {type(x) for row in matrix for x in row} <= {int, float, NoneType}:
        return None
    try:
        array = np.array(matrix, dtype=np.float64)
    except OverflowError:  # an integer of hundreds of digits
        return None
    return None if np.isinf(array).any() else line | {"kl": array}


def _spread_evenly(lines: list[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """At most so many, an odd number: the first, the middle and the last are among them."""
    if len(lines) <= most:
        return lines
    return [lines[round(i * (len(lines) - 1) / (most - 1))] for i in range(most)]


def _tell_apart(runs: list[Run]) -> None:
    """Make names unique by putting parent folders in front."""
    depth = 1
    while len({run.name for run in runs}) < len(runs) and depth < 20:
        depth += 1
        names = [run.name for run in runs]
        for run in runs:
            if names.count(run.name) > 1:
                run.name = "/".join(run.path.resolve().parts[-depth:])
