"""Methods compared: final scores, one figure over all tasks, probability of improvement, and the headline."""

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from echelon.console.wording import pair
from echelon.report.contents import Contents
from echelon.report.curves import thin
from echelon.report.methods import Method
from echelon.report.reading import Run
from echelon.report.statistics import (
    MIN_SEEDS,
    Interval,
    Sample,
    Scores,
    bootstrap_interval,
    holm,
    interquartile_mean,
    probability_of_improvement,
    sample,
    welch,
)

SIGNIFICANCE_LEVEL = 0.05
"""A difference is significant below this p."""
MAX_NAMED = 4
"""Tasks up to which the headline names each."""


@dataclass(frozen=True)
class Cell:
    """One method on one task. It is scored at `steps`, or at the end of its runs if that is None."""

    task: str
    method: str
    sample: Sample
    iqm: float
    interval: Interval
    """95 % bootstrap interval of the IQM, from five seeds on."""
    best: bool
    """Whether its mean is the highest of the task."""
    p: float
    """p of Welch's test against the best; NaN for the best itself."""
    p_holm: float
    """The same, corrected for all comparisons of the table."""
    bold: bool
    """As in the paper: the best, and all that do not differ significantly from it. Never with fewer than five seeds of
    either, nor where only one method was run."""
    steps: float | None = None
    provisional: bool = False
    comparable: bool = True


@dataclass(frozen=True)
class Improvement:
    """How likely a run of one method beats one of another, averaged over the tasks both have."""

    method: str
    other: str
    probability: float
    interval: Interval


@dataclass(frozen=True)
class Aggregate:
    """A method over all contested tasks, by normalised scores, a stratum per task."""

    method: str
    iqm: float
    interval: Interval
    strata: tuple[Scores, ...]

    def profile(self, levels: Scores) -> Scores:
        """Share of runs above each level, every task counted alike."""
        return np.mean([(stratum[None, :] > levels[:, None]).mean(axis=1) for stratum in self.strata], axis=0)


def score_table(contents: Contents) -> list[Cell]:
    """A cell per task and method, ordered by task. Runs that stopped early are scored there, and not tested."""
    cells: list[Cell] = []
    for task in contents.tasks:
        row = [(method.name, one) for method in contents.methods if (one := contents.scored(method, task))]
        samples = {name: sample(one.values) for name, one in row if one.comparable}
        best = max(samples, key=lambda name: samples[name].mean, default="")
        for name, one in row:
            tested = name in samples and len(samples) > 1
            p = welch(samples[name], samples[best]) if tested and name != best else math.nan
            enough = tested and min(samples[name].runs, samples[best].runs) >= MIN_SEEDS
            bold = enough and (name == best or p > SIGNIFICANCE_LEVEL)
            iqm, interval = float(interquartile_mean(one.values)), interval_of(contents, [one.values])
            state = (one.steps, one.provisional, one.comparable)
            cells.append(Cell(task, name, sample(one.values), iqm, interval, name == best, p, p, bold, *state))
    corrected = holm([cell.p for cell in cells])
    return [replace(cell, p_holm=p_holm) for cell, p_holm in zip(cells, corrected, strict=True)]


def interval_of(contents: Contents, strata: Sequence[Sequence[float] | Scores], **given: Any) -> Interval:
    """A bootstrap interval where every stratum has enough seeds, and the comparison is the report's own."""
    enough = contents.at is None and min(map(len, strata)) >= MIN_SEEDS
    return bootstrap_interval(*strata, **given) if enough else Interval()


def contested(contents: Contents) -> list[str]:
    """Tasks on which two methods or more can be compared: on the others no method can be the best."""
    return [task for task in contents.tasks if sum(bool(contents.scores(m, task)) for m in contents.methods) > 1]


def aggregates(contents: Contents) -> list[Aggregate]:
    """Methods that ran every contested task; see `normalised` for the scale."""
    rows = [normalised(contents, task) for task in contested(contents)]
    found = []
    for name in [method.name for method in contents.methods]:
        strata = tuple(row[name] for row in rows if name in row)
        if rows and len(strata) == len(rows):
            found.append(Aggregate(name, float(interquartile_mean(*strata)), interval_of(contents, strata), strata))
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
    values = thin(run.columns[metric]) if metric in run.columns else np.array([])
    return next((float(value) for value in values if math.isfinite(value)), math.nan)


def improvements(contents: Contents) -> list[Improvement]:
    """Every ordered pair of methods with comparable runs of a task in common."""
    found = []
    for a, b in itertools.combinations(contents.methods, 2):
        pairs = [(contents.scores(a, task), contents.scores(b, task)) for task in contents.tasks]
        strata = [side for ours, theirs in pairs if ours and theirs for side in (ours, theirs)]
        if strata:
            low, high = interval_of(contents, strata, statistic=_mean_improvement)
            probability = float(_mean_improvement(*map(np.asarray, strata)))
            found.append(Improvement(a.name, b.name, probability, Interval(low, high)))
            found.append(Improvement(b.name, a.name, 1 - probability, Interval(1 - high, 1 - low)))
    return found


def _mean_improvement(*strata: Scores) -> Scores:
    """Mean over tasks; strata alternate between ours and theirs, a pair per task."""
    pairs = zip(strata[::2], strata[1::2], strict=True)
    return np.mean([probability_of_improvement(ours, theirs) for ours, theirs in pairs], axis=0)


def _final(contents: Contents, method: Method, task: str) -> float:
    """Mean training return at the end, of runs that have finished."""
    return sample([run.final(contents.score) for run in contents.counted(method, task) if run.finished]).mean


def headline(contents: Contents) -> str:
    """The result of the comparison in a few sentences, with n and p."""
    tasks, cells = contested(contents), score_table(contents)
    late = " No run has finished yet: this is provisional, at the steps that all have reached."
    late = "" if any(contents.basis(task).finished for task in contents.tasks) else late
    if not tasks:
        return f"No task was run by two methods, so none can be called better.{late}"
    rows = [
        sorted((c for c in cells if c.task == task and c.comparable), key=lambda c: -c.sample.mean) for task in tasks
    ]
    wins = Counter(row[0].method for row in rows)
    first = [method.name for method in contents.methods if wins[method.name] == max(wins.values())]
    of = f"{len(tasks)} tasks"
    have = f"{first[0]} has" if len(first) == 1 else f"{' and '.join(first)} each have"
    of = of if len(tasks) == len(contents.tasks) else f"the {of} that two or more methods ran"
    lead = f"{have} the highest mean {contents.score_name} on {max(wins.values())} of {of}. " if len(tasks) > 1 else ""
    if len(tasks) <= MAX_NAMED:
        return lead + " ".join(_told(contents, *row[:2]) for row in rows) + late
    sure = sum(row[1].p < SIGNIFICANCE_LEVEL and min(cell.sample.runs for cell in row[:2]) >= MIN_SEEDS for row in rows)
    counts = [cell.sample.runs for row in rows for cell in row]
    return f"{lead}The lead over the second is beyond chance on {sure}; n = {min(counts)} to {max(counts)}.{late}"


def _told(contents: Contents, best: Cell, second: Cell) -> str:
    """One task in a sentence: the two best methods, and the test between them."""
    fewest = min(best.sample.runs, second.sample.runs)
    p = "p < 0.001" if second.p < 0.001 else f"p = {second.p:.3f}"
    beyond = "beyond chance" if second.p < SIGNIFICANCE_LEVEL else "may be chance"
    test = (
        f"{p}, {'too few seeds to tell' if fewest < MIN_SEEDS else beyond}"
        if fewest > 1
        else "single runs prove nothing"
    )
    trained = {method.name: _final(contents, method, best.task) for method in contents.methods}
    top = max(trained, key=lambda name: (math.isfinite(trained[name]), trained[name]))
    other = f" In training {top} ends highest." if top != best.method and contents.basis(best.task).evaluated else ""
    numbers = [f"{pair(cell.sample.mean, cell.sample.deviation)} (n = {cell.sample.runs})" for cell in (best, second)]
    return (
        f"On {best.task}, {best.method} has the highest {contents.basis_words(best.task)}, {numbers[0]}, before "
        f"{second.method} with {numbers[1]}: {test}.{other}"
    )
