"""Methods compared over all tasks: normalised scores, probability of improvement, and the headline."""

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from echelon.console.wording import pair
from echelon.report import statistics
from echelon.report.contents import SIGNIFICANCE_LEVEL, Cell, Contents
from echelon.report.statistics import MIN_SEEDS, Scores

MAX_NAMED = 4
"""Tasks up to which the headline names each."""


@dataclass(frozen=True)
class Improvement:
    """How likely a run of one method beats one of another, averaged over the tasks both have."""

    method: str
    other: str
    probability: float
    interval: tuple[float, float]


@dataclass(frozen=True)
class Aggregate:
    """A method over all contested tasks, by normalised scores."""

    method: str
    iqm: float
    interval: tuple[float, float]
    strata: list[Scores]
    """Normalised scores `[runs]` of each task."""
    levels: Scores
    profile: Scores
    """Share of runs above each level, every task counted alike."""


def contested(contents: Contents) -> list[str]:
    """Tasks on which two methods or more can be compared: on the others no method can be the best."""
    return [task for task in contents.tasks if sum(bool(contents.scores(m, task)) for m in contents.methods) > 1]


def aggregates(contents: Contents) -> list[Aggregate]:
    """Methods that ran every contested task on which anything was learned, if there are two of each; see `normalised`
    for the scale."""
    rows = [row for task in contested(contents) if (row := normalised(contents, task))]
    names = [method.name for method in contents.methods if all(method.name in row for row in rows)]
    if min(len(rows), len(names)) < 2:
        return []
    strata = [[row[name] for row in rows] for name in names]
    iqms = [float(statistics.interquartile_mean(*group)) for group in strata]
    intervals = [statistics.interval_of(group) for group in strata]
    ends = [0.0, 1.0, *iqms, *(end for interval in intervals for end in interval)]
    levels = np.linspace(np.nanmin(ends), np.nanmax(ends), 101)
    found = zip(names, iqms, intervals, strata, strict=True)
    return [Aggregate(*one, levels, profile(one[-1], levels)) for one in found]


def profile(strata: Sequence[Scores], levels: Scores) -> Scores:
    """Share of runs above each level, the mean of the tasks."""
    return np.mean([(stratum[None, :] > levels[:, None]).mean(axis=1) for stratum in strata], axis=0)


def normalised(contents: Contents, task: str) -> dict[str, Scores]:
    """Scores of each method on a scale where 0 is the training return that runs started with and 1 the best method's
    mean; empty where nothing was learned."""
    scores = {method.name: np.array(contents.scores(method, task)) for method in contents.methods}
    scores = {name: values for name, values in scores.items() if len(values)}
    counted = [run for method in contents.methods for run in method.counted(task) if contents.score in run.columns]
    starts = [y[np.isfinite(y)][0] for _, y in (run.curve(contents.score) for run in counted) if np.isfinite(y).any()]
    low, high = np.mean(starts or math.nan), max((values.mean() for values in scores.values()), default=math.nan)
    return {name: (values - low) / (high - low) for name, values in scores.items()} if high > low else {}


def improvements(contents: Contents) -> list[Improvement]:
    """Every ordered pair of methods with comparable runs of a task in common."""
    found = []
    for a, b in itertools.combinations(contents.methods, 2):
        pairs = [(contents.scores(a, task), contents.scores(b, task)) for task in contents.tasks]
        strata = [side for ours, theirs in pairs if ours and theirs for side in (ours, theirs)]
        if strata:
            low, high = statistics.interval_of(strata, statistic=_mean_improvement)
            probability = float(_mean_improvement(*map(np.asarray, strata)))
            found.append(Improvement(a.name, b.name, probability, (low, high)))
            found.append(Improvement(b.name, a.name, 1 - probability, (1 - high, 1 - low)))
    return found


def _mean_improvement(*strata: Scores) -> Scores:
    """Mean over tasks; strata alternate between ours and theirs, a pair per task."""
    pairs = zip(strata[::2], strata[1::2], strict=True)
    return np.mean([statistics.probability_of_improvement(ours, theirs) for ours, theirs in pairs], axis=0)


def headline(contents: Contents) -> str:
    """The result of the comparison in a few sentences, with n and p."""
    tasks, cells = contested(contents), [cell for cell in contents.cells.values() if cell.comparable]
    late = " No run has finished yet: this is provisional, at the steps that all have reached."
    late = "" if any(contents.basis(task).finished for task in contents.tasks) else late
    if not tasks:
        return f"No task was run by two methods, so none can be called better.{late}"
    rows = [sorted((cell for cell in cells if cell.task == task), key=lambda cell: -cell.sample.mean) for task in tasks]
    wins = Counter(row[0].method for row in rows)
    first = [method.name for method in contents.methods if wins[method.name] == max(wins.values())]
    have = f"{first[0]} has" if len(first) == 1 else f"{' and '.join(first)} each have"
    of = "tasks" if len(tasks) == len(contents.tasks) else "tasks that two or more methods ran"
    lead = f"{have} the highest mean {contents.score_name} on {max(wins.values())} of {len(tasks)} {of}. "
    lead = lead if len(tasks) > 1 else ""
    if len(tasks) <= MAX_NAMED:
        return lead + " ".join(_told(contents, *row[:2]) for row in rows) + late
    sure = sum(row[1].p < SIGNIFICANCE_LEVEL and min(cell.sample.runs for cell in row[:2]) >= MIN_SEEDS for row in rows)
    counts = sorted({cell.sample.runs for row in rows for cell in row})
    n = f"n = {counts[0]}" + (f" to {counts[-1]}" if len(counts) > 1 else "")
    other = sum(bool(_ends_higher(contents, row[0])) for row in rows)
    others = f" On {other} of them another method ends highest in training." if other else ""
    return f"{lead}The lead over the second is beyond chance (p < {SIGNIFICANCE_LEVEL}) on {sure}; {n}.{others}{late}"


def _ends_higher(contents: Contents, best: Cell) -> str | None:
    """The method that ends highest in training, where another was evaluated as the best."""
    by_method = {
        m.name: [run.final(contents.score) for run in m.counted(best.task) if run.finished] for m in contents.methods
    }
    means = {name: statistics.sample(values).mean for name, values in by_method.items()}
    trained = {name: mean for name, mean in means.items() if math.isfinite(mean)}  # some logged none at their end
    if best.method not in trained or not contents.basis(best.task).evaluated:
        return None
    top = max(trained, key=lambda name: (trained[name], name == best.method))
    return top if top != best.method else None


def _told(contents: Contents, best: Cell, second: Cell) -> str:
    """One task in a sentence: the two best methods, and the test between them."""
    task, fewest = best.task, min(best.sample.runs, second.sample.runs)
    sure = "beyond chance" if second.p < SIGNIFICANCE_LEVEL else "may be chance"
    p = "p < 0.001" if second.p < 0.001 else f"p = {second.p:.3f}"
    test = f"{p}, {sure if fewest >= MIN_SEEDS else 'too few seeds to tell'}"
    test = test if fewest > 1 else "single runs prove nothing"
    other = f" In training {top} ends highest." if (top := _ends_higher(contents, best)) else ""
    ours, theirs = (f"{pair(*cell.sample[:2])} (n = {cell.sample.runs})" for cell in (best, second))
    words = f"On {task}, {best.method} has the highest {contents.basis_words(task)}, {ours}, before "
    return f"{words}{second.method} with {theirs}: {test}.{other}"
