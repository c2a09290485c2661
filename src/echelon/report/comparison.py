"""Methods compared: final scores, probability of improvement, and steps to reach another's score."""

import itertools
import math
from dataclasses import dataclass

import numpy as np

from echelon.report.contents import Contents, Scored
from echelon.report.curves import reaches, thin
from echelon.report.methods import Method
from echelon.report.reading import Run
from echelon.report.significance import Sample, holm, sample, welch
from echelon.report.statistics import (
    Interval,
    Scores,
    bootstrap_interval,
    interquartile_mean,
    probability_of_improvement,
)

SIGNIFICANCE_LEVEL = 0.05
"""A difference is significant below this p."""


@dataclass(frozen=True)
class Cell:
    """One method on one task."""

    task: str
    method: str
    sample: Sample
    iqm: float
    interval: Interval
    """95 % bootstrap interval of the IQM."""
    best: bool
    """Whether its mean is the highest of the task."""
    p: float
    """p of Welch's test against the best; NaN for the best itself."""
    p_holm: float
    """The same, corrected for all comparisons of the table."""
    steps: float | None = None
    """Environment steps at which it was scored; None: at the end of its runs."""
    provisional: bool = False
    """Whether its runs have not finished."""

    @property
    def bold(self) -> bool:
        """As in the paper: the best, and all that do not differ significantly from it. One run each is no test."""
        return self.best or self.p > SIGNIFICANCE_LEVEL


@dataclass(frozen=True)
class Improvement:
    """How likely a run of one method beats one of another, averaged over the tasks both have."""

    method: str
    other: str
    probability: float
    interval: Interval
    """95 % bootstrap interval; NaN where one side has a single run of every task."""


@dataclass(frozen=True)
class Reach:
    """Environment steps until one method's mean curve reaches the final score of another."""

    task: str
    method: str
    other: str
    steps: float
    """NaN if it never does."""
    share: float
    """`steps` over the steps of the other."""


def score_table(contents: Contents) -> list[Cell]:
    """A cell per task and method, ordered by task. What was stopped early is scored where it stands, and not tested."""
    found: list[tuple[str, str, Scored, bool, float]] = []
    for task in contents.tasks:
        scored = {method.name: contents.scored(method, task) for method in contents.methods}
        row = {name: one for name, one in scored.items() if one is not None}
        samples = {name: sample(one.values) for name, one in row.items() if one.comparable}
        best = max(samples, key=lambda name: samples[name].mean, default="")
        for name, one in row.items():
            p = welch(samples[name], samples[best]) if name in samples and name != best else math.nan
            found.append((task, name, one, name == best, p))
    corrected = holm([p for *_, p in found])
    return [
        Cell(
            task,
            name,
            sample(one.values),
            float(interquartile_mean(one.values)),
            bootstrap_interval(one.values),
            best,
            p,
            p_holm,
            one.steps,
            one.provisional,
        )
        for (task, name, one, best, p), p_holm in zip(found, corrected, strict=True)
    ]


def contested(contents: Contents) -> list[str]:
    """Tasks on which two methods or more can be compared: of the others no method can be the best."""
    return [task for task in contents.tasks if sum(bool(contents.scores(m, task)) for m in contents.methods) > 1]


@dataclass(frozen=True)
class Aggregate:
    """A method over all contested tasks, by normalised scores."""

    method: str
    iqm: float
    interval: Interval
    """95 % stratified bootstrap interval of the IQM."""
    strata: tuple[Scores, ...]
    """Normalised scores, a task each."""

    def profile(self, levels: Scores) -> Scores:
        """Share of runs above each level, every task counted alike."""
        return np.mean([(stratum[None, :] > levels[:, None]).mean(axis=1) for stratum in self.strata], axis=0)


def aggregates(contents: Contents) -> list[Aggregate]:
    """Methods that ran every contested task; see `normalised` for the scale."""
    tasks = contested(contents)
    found = []
    for method in contents.methods:
        rows = [normalised(contents, task).get(method.name) for task in tasks]
        strata = tuple(row for row in rows if row is not None)
        if tasks and len(strata) == len(tasks):
            interval = bootstrap_interval(*strata)
            found.append(Aggregate(method.name, float(interquartile_mean(*strata)), interval, strata))
    return found


def normalised(contents: Contents, task: str) -> dict[str, Scores]:
    """Scores of each method on a scale where 0 is the training return that runs started with and 1 the best method's
    mean; empty where nothing was learned."""
    scores = {method.name: np.array(contents.scores(method, task)) for method in contents.methods}
    scores = {name: values for name, values in scores.items() if len(values)}
    starts = [_start(run, contents.score) for method in contents.methods for run in contents.counted(method, task)]
    low, high = np.nanmean(starts or [math.nan]), max((values.mean() for values in scores.values()), default=math.nan)
    return {name: (values - low) / (high - low) for name, values in scores.items()} if high > low else {}


def _start(run: Run, metric: str) -> float:
    """The first value of a thinned curve."""
    values = thin(run, metric) if metric in run.columns else np.array([])
    known = values[np.isfinite(values)]
    return float(known[0]) if len(known) else math.nan


def improvements(contents: Contents) -> list[Improvement]:
    """Every ordered pair of methods with comparable runs of a task in common."""
    found = []
    for a, b in itertools.combinations(contents.methods, 2):
        pairs = [(contents.scores(a, task), contents.scores(b, task)) for task in contents.tasks]
        strata = [side for ours, theirs in pairs if ours and theirs for side in (ours, theirs)]
        if strata:
            tested = any(min(len(ours), len(theirs)) > 1 for ours, theirs in pairs)
            low, high = bootstrap_interval(*strata, statistic=_mean_improvement) if tested else (math.nan, math.nan)
            probability = float(_mean_improvement(*map(np.asarray, strata)))
            found.append(Improvement(a.name, b.name, probability, Interval(low, high)))
            found.append(Improvement(b.name, a.name, 1 - probability, Interval(1 - high, 1 - low)))
    return found


def _mean_improvement(*strata: Scores) -> Scores:
    """Mean over tasks; strata alternate between ours and theirs, a pair per task."""
    pairs = zip(strata[::2], strata[1::2], strict=True)
    return np.mean([probability_of_improvement(ours, theirs) for ours, theirs in pairs], axis=0)


def reach_table(contents: Contents) -> list[Reach]:
    """Every ordered pair of methods on every task, by training returns: evaluations have no curve."""
    found = []
    for task in contents.tasks:
        bands = {method.name: contents.band(method, task, contents.score) for method in contents.methods}
        finals = {method.name: _final(contents, method, task) for method in contents.methods}
        for a, b in itertools.permutations(bands, 2):
            ours, theirs = bands[a], bands[b]
            if ours is None or theirs is None or math.isnan(finals[b]):
                continue
            steps = reaches(ours, finals[b])
            found.append(Reach(task, a, b, steps, steps / float(theirs.x[-1])))
    return found


def _final(contents: Contents, method: Method, task: str) -> float:
    """Mean training return at the end, of runs that have finished."""
    return sample([run.final(contents.score) for run in contents.counted(method, task) if run.finished]).mean
