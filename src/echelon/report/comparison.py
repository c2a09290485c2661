"""Methods compared: final scores, probability of improvement, and steps to reach another's score."""

import itertools
import math
from dataclasses import dataclass

import numpy as np

from echelon.report.contents import Contents
from echelon.report.curves import reaches
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

    @property
    def bold(self) -> bool:
        """As in the paper: the best, and all that do not differ significantly from it."""
        return self.best or self.p > SIGNIFICANCE_LEVEL


@dataclass(frozen=True)
class Improvement:
    """How likely a run of one method beats one of another, averaged over the tasks both have."""

    method: str
    other: str
    probability: float
    interval: Interval


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
    """A cell per task and method with a finished run, ordered by task."""
    found = []
    for task in contents.tasks:
        row = {method.name: contents.scores(method, task) for method in contents.methods}
        samples = {name: sample(values) for name, values in row.items() if values}
        best = max(samples, key=lambda name: samples[name].mean, default="")
        for name, one in samples.items():
            p = math.nan if name == best else welch(one, samples[best])
            found.append((task, name, one, row[name], name == best, p))
    corrected = holm([p for *_, p in found])
    return [
        Cell(task, name, one, float(interquartile_mean(values)), bootstrap_interval(values), best, p, p_holm)
        for (task, name, one, values, best, p), p_holm in zip(found, corrected, strict=True)
    ]


def improvements(contents: Contents) -> list[Improvement]:
    """Every ordered pair of methods with finished runs of a task in common."""
    found = []
    for a, b in itertools.permutations(contents.methods, 2):
        pairs = [(contents.scores(a, task), contents.scores(b, task)) for task in contents.tasks]
        strata = [side for ours, theirs in pairs if ours and theirs for side in (ours, theirs)]
        if strata:
            interval = bootstrap_interval(*strata, statistic=_mean_improvement)
            found.append(Improvement(a.name, b.name, float(_mean_improvement(*map(np.asarray, strata))), interval))
    return found


def _mean_improvement(*strata: Scores) -> Scores:
    """Mean over tasks; strata alternate between ours and theirs, a pair per task."""
    pairs = zip(strata[::2], strata[1::2], strict=True)
    return np.mean([probability_of_improvement(ours, theirs) for ours, theirs in pairs], axis=0)


def reach_table(contents: Contents) -> list[Reach]:
    """Every ordered pair of methods on every task."""
    found = []
    for task in contents.tasks:
        bands = {method.name: contents.band(method, task, contents.score) for method in contents.methods}
        finals = {method.name: sample(contents.scores(method, task)).mean for method in contents.methods}
        for a, b in itertools.permutations(bands, 2):
            ours, theirs = bands[a], bands[b]
            if ours is None or theirs is None or math.isnan(finals[b]):
                continue
            steps = reaches(ours, finals[b])
            found.append(Reach(task, a, b, steps, steps / float(theirs.x[-1])))
    return found
