"""The contents of a report: its runs, grouped into methods, and what they are compared by."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from echelon.console.wording import count
from echelon.report.curves import Band, Curve, at_step, band, thin
from echelon.report.methods import Method
from echelon.report.reading import Problem, Run

SAME_BUDGET = 1.05
"""Runs whose lengths differ by less are compared at their ends: the final score averages over as long a stretch."""


@dataclass(frozen=True)
class Basis:
    """What the runs of one task are compared by."""

    evaluated: bool
    """By evaluations at the end of training, or else by the training return."""
    steps: float | None
    """Environment steps at which all are compared, because they end at different ones; None: at their ends."""
    finished: bool
    """Whether any run has finished; all scores are provisional otherwise."""


@dataclass(frozen=True)
class Scored:
    """What the runs of one method score on one task, after `steps` or at their ends."""

    values: list[float]
    steps: float | None
    provisional: bool
    """Whether they are of runs that have not finished."""
    comparable: bool
    """Whether the other methods of the task were scored at the same place."""


@dataclass(frozen=True)
class Contents:
    """The runs of a report, and the folders that could not be read."""

    runs: list[Run]
    methods: list[Method]
    problems: list[Problem]
    score: str
    """The metric that decides who is better, `NAME/leader`."""
    at: float | None = None
    """Environment steps to compare at; None: where the rules of docs/report.md say."""
    _known: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def tasks(self) -> list[str]:
        return list(dict.fromkeys(run.task for run in self.runs))

    @property
    def score_name(self) -> str:
        """The score's name for readers."""
        return self.score.removesuffix("/leader").replace("_", " ")

    def counted(self, method: Method, task: str) -> list[Run]:
        """A method's runs of a task, each seed once: a seed that was run again does not count twice."""
        return once(method.on(task))

    def basis(self, task: str) -> Basis:
        """What the runs of a task are compared by; see docs/report.md, "What is compared"."""
        if self.at is not None:
            return Basis(evaluated=False, steps=self.at, finished=True)
        runs = [run for method in self.methods for run in self.counted(method, task)]
        finished = [run for run in runs if run.finished]
        lengths = [run.env_steps for run in finished or runs]
        equal = bool(finished) and max(lengths) <= SAME_BUDGET * min(lengths)
        evaluated = equal and all(math.isfinite(run.evaluated(self.score)) for run in finished)
        return Basis(evaluated, None if equal else min(lengths), bool(finished))

    def basis_words(self, task: str) -> str:
        """Describe the scores of a task."""
        basis = self.basis(task)
        words = f"{'evaluated' if basis.evaluated else 'training'} {self.score_name}"
        return words if basis.steps is None else f"{words} at {count(basis.steps)} steps"

    def scored(self, method: Method, task: str) -> Scored | None:
        """The scores of a method's runs of a task; None if there are none. Cached, since every table needs it."""
        key = (method.name, task)
        if key not in self._known:
            self._known[key] = self._score(method, task)
        return self._known[key]

    def _score(self, method: Method, task: str) -> Scored | None:
        basis, runs, steps = self.basis(task), self.counted(method, task), self.basis(task).steps
        ready = [run for run in runs if run.finished] if basis.finished else runs
        if self.at is not None:
            ready = runs = [run for run in runs if run.env_steps >= self.at * (1 - 1e-9)]
        comparable = bool(ready)
        if not ready and runs:  # stopped early while others of the task have finished
            ready, steps = runs, min(run.env_steps for run in runs)
        if basis.evaluated and comparable:
            values = [run.evaluated(self.score) for run in ready]
        else:
            values = [self.training_score(run, steps) for run in ready]
        values = [value for value in values if math.isfinite(value)]
        return Scored(values, steps, not (comparable and basis.finished), comparable) if values else None

    def scores(self, method: Method, task: str) -> list[float]:
        """Scores of a method's runs that can be compared with those of other methods."""
        found = self.scored(method, task)
        return found.values if found and found.comparable else []

    def training_score(self, run: Run, steps: float | None) -> float:
        """A run's score by its training metric, at its end or after `steps` environment steps."""
        if self.score not in run.columns:
            return math.nan
        if steps is None or (self.at is None and run.env_steps <= SAME_BUDGET * steps):
            return run.final(self.score)
        return at_step(*curve(run, "env_steps", self.score), steps)

    def band(self, method: Method, task: str, metric: str, axis: str = "env_steps") -> Band | None:
        """Mean curve and spread of a method's runs of a task; cached, since tables and figures both need it."""
        key = (method.name, task, metric, axis)
        if key not in self._known:
            runs = [run for run in self.counted(method, task) if metric in run.columns and axis in run.columns]
            self._known[key] = band([curve(run, axis, metric) for run in runs])
        return self._known[key]


def curve(run: Run, axis: str, metric: str) -> Curve:
    """A metric of a run against an axis, thinned."""
    return thin(run.columns[axis]), thin(run.columns[metric])


def once(runs: Sequence[Run]) -> list[Run]:
    """One run per seed: the longest, and of equally long ones the first."""
    longest: dict[int, Run] = {}
    for run in runs:
        seed = run.config.seed
        if seed not in longest or run.env_steps > longest[seed].env_steps:
            longest[seed] = run
    return [run for run in runs if longest[run.config.seed] is run]


def mapped_runs(contents: Contents, method: Method, task: str) -> list[Run]:
    """A method's runs of a task with KL maps of one size, that of the first."""
    runs = [run for run in contents.counted(method, task) if run.distances]
    return [run for run in runs if run.config.num_policies == runs[0].config.num_policies]
