"""The contents of a report: its runs, grouped into methods, and their scores."""

import math
from dataclasses import dataclass, replace
from functools import cached_property

from echelon.console.wording import count
from echelon.report import statistics
from echelon.report.methods import Method
from echelon.report.reading import Run
from echelon.report.statistics import MIN_SEEDS, Band, Sample

SIGNIFICANCE_LEVEL = 0.05
"""A difference is significant below this p."""
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
class Cell:
    """One method on one task. It is scored at `steps`, or at the end of its runs if that is None."""

    task: str
    method: str
    values: list[float]
    sample: Sample
    iqm: float
    interval: tuple[float, float]
    """95 % bootstrap interval of the IQM, from five seeds on."""
    steps: float | None
    provisional: bool
    """Whether the scores are of runs that have not finished."""
    comparable: bool
    """Whether the other methods of the task were scored at the same place."""
    best: bool = False
    """Whether its mean is the highest of the task."""
    p: float = math.nan
    """p of Welch's test against the best; NaN for the best itself."""
    p_holm: float = math.nan
    """The same, corrected for all comparisons of the table."""
    bold: bool = False
    """As in the paper: the best, and all that do not differ significantly from it. Never with fewer than five seeds of
    either, nor where only one method was run."""


@dataclass(frozen=True)
class Contents:
    """The runs of a report, and how they are scored."""

    runs: list[Run]
    methods: list[Method]
    problems: dict[str, str]
    """What is wrong with folders that could not be read, by path."""
    score: str
    """The metric that decides who is better, `NAME/leader`."""

    @cached_property
    def tasks(self) -> list[str]:
        return list(dict.fromkeys(run.task for run in self.runs))

    @property
    def score_name(self) -> str:
        """The score's name for readers."""
        return self.score.removesuffix("/leader").replace("_", " ")

    def basis(self, task: str) -> Basis:
        """What the runs of a task are compared by; see docs/report.md, "What is compared"."""
        runs = [run for method in self.methods for run in method.counted(task)]
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

    @cached_property
    def cells(self) -> dict[tuple[str, str], Cell]:
        """The table of scores by task and method. Runs that stopped early are scored there, and not tested."""
        found: list[Cell] = []
        for task in self.tasks:
            row = [cell for method in self.methods if (cell := self._cell(method, task))]
            rivals = [cell for cell in row if cell.comparable]
            best = max(rivals, key=lambda cell: cell.sample.mean, default=None)
            for cell in row:
                p, bold = math.nan, False
                if best is not None and cell.comparable and len(rivals) > 1:
                    p = math.nan if cell is best else statistics.welch(cell.sample, best.sample)
                    enough = min(cell.sample.runs, best.sample.runs) >= MIN_SEEDS
                    bold = enough and (cell is best or p > SIGNIFICANCE_LEVEL)
                found.append(replace(cell, best=cell is best, p=p, bold=bold))
        adjusted = zip(found, statistics.holm([cell.p for cell in found]), strict=True)
        return {(cell.task, cell.method): replace(cell, p_holm=p) for cell, p in adjusted}

    def _cell(self, method: Method, task: str) -> Cell | None:
        """The scores of a method's runs of a task, before they are compared; None if there are none."""
        basis, runs = self.basis(task), method.counted(task)
        ready = [run for run in runs if run.finished or not basis.finished]
        # without one: stopped early, while others of the task have finished
        steps = basis.steps if ready else min((run.env_steps for run in runs), default=None)
        by_evaluation = basis.evaluated and ready
        values = [run.evaluated(self.score) if by_evaluation else self._trained(run, steps) for run in ready or runs]
        values = [value for value in values if math.isfinite(value)]
        if not values:
            return None
        iqm, state = float(statistics.interquartile_mean(values)), (not (ready and basis.finished), bool(ready))
        interval = statistics.interval_of([values])
        return Cell(task, method.name, values, statistics.sample(values), iqm, interval, steps, *state)

    def _trained(self, run: Run, steps: float | None) -> float:
        """A run's score by its training metric, at its end or after `steps` environment steps."""
        if self.score not in run.columns or steps is None or run.env_steps <= SAME_BUDGET * steps:
            return run.final(self.score)
        return statistics.at_step(*run.curve(self.score), steps)

    def scores(self, method: Method, task: str) -> list[float]:
        """Scores of a method's runs that can be compared with those of other methods."""
        cell = self.cells.get((task, method.name))
        return cell.values if cell and cell.comparable else []

    def bands(self, task: str, metric: str, axis: str = "env_steps") -> dict[str, Band]:
        """Mean curve and spread by method; with an interval for the score only, since resampling takes long."""
        groups = {method.name: method.counted(task) for method in self.methods}
        curves = {
            name: {run.name: run.curve(metric, axis) for run in runs if {axis, metric} <= run.columns.keys()}
            for name, runs in groups.items()
        }
        return statistics.bands(curves, MIN_SEEDS if metric == self.score else math.inf)

    def marks(self, task: str, metric: str) -> list[tuple[float, str]]:
        """Levels to draw beside a metric, with their names: of the discriminator's loss, what guessing gives."""
        runs = [run for run in self.runs if run.task == task and metric in run.columns and metric == "adversary/loss"]
        return [(math.log(size), f"ln {size}: a blind guess") for size in {run.config.num_policies for run in runs}]

    def mapped(self, method: Method, task: str) -> list[Run]:
        """A method's runs of a task with KL maps of one size, that of the first."""
        runs = [run for run in method.counted(task) if run.distances]
        return [run for run in runs if run.config.num_policies == runs[0].config.num_policies]
