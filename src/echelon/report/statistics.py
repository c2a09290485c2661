"""Statistics of scores and curves of several runs: means, tests, intervals. Pure functions of NumPy arrays.

A **stratum** holds the scores of runs that differ only in the seed: one method on one task. `interquartile_mean` and
`probability_of_improvement` take strata `[..., runs]` and reduce the last dimension, so that `bootstrap_interval` can
evaluate them for all resamples at once. The choices are those of Agarwal et al. 2021, *Deep Reinforcement Learning at
the Edge of the Statistical Precipice*; Welch's test can be applied to published tables too.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Scores = NDArray[np.float64]
Curve = tuple[Scores, Scores]
"""x and y."""

MIN_SEEDS = 5
"""With fewer seeds a report gives no interval and prints nothing in bold: both would claim too much."""
CURVE_POINTS, GRID_POINTS = 300, 150
"""Points of a thinned curve, each the mean of an equal share of the iterations, and of the grid that runs share."""


class Sample(NamedTuple):
    """Scores of one method on one task, as a table prints them."""

    mean: float
    deviation: float
    """Sample standard deviation (n - 1); NaN for a single run."""
    runs: int


def sample(scores: ArrayLike) -> Sample:
    """Return mean, deviation and number of scores `[runs]`."""
    values = np.asarray(scores, dtype=np.float64)
    deviation = float(values.std(ddof=1)) if len(values) > 1 else math.nan
    return Sample(float(values.mean()) if len(values) else math.nan, deviation, len(values))


def interquartile_mean(*strata: ArrayLike) -> Scores:
    """Mean of the middle half of all scores, `[..., runs] -> [...]`: a quarter, rounded down, is cut at each end."""
    scores = np.sort(np.concatenate([np.asarray(stratum, dtype=np.float64) for stratum in strata], axis=-1), axis=-1)
    cut = scores.shape[-1] // 4
    return scores[..., cut : scores.shape[-1] - cut].mean(axis=-1)


def probability_of_improvement(ours: ArrayLike, theirs: ArrayLike) -> Scores:
    """Share of pairs in which a run of ours beats one of theirs, `[..., n], [..., m] -> [...]`; a tie counts half."""
    a, b = np.asarray(ours, dtype=np.float64)[..., :, None], np.asarray(theirs, dtype=np.float64)[..., None, :]
    return ((a > b) + 0.5 * (a == b)).mean(axis=(-2, -1))


def bootstrap_interval(
    *strata: ArrayLike,
    statistic: Callable[..., Scores] = interquartile_mean,
    confidence: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> tuple[float, float]:
    """Percentile interval of `statistic(*strata)`, each stratum `[..., runs]` resampled with replacement within itself;
    NaN where all have one run, which leaves nothing to resample."""
    arrays = [np.asarray(stratum, dtype=np.float64) for stratum in strata]
    if all(array.shape[-1] < 2 for array in arrays):
        return math.nan, math.nan
    generator, sizes = np.random.default_rng(seed), [array.shape[-1] for array in arrays]
    drawn = [array[..., generator.integers(n, size=(resamples, n))] for array, n in zip(arrays, sizes, strict=True)]
    tail = (1 - confidence) / 2
    low, high = np.quantile(statistic(*drawn), (tail, 1 - tail), axis=-1)
    return low, high


def interval_of(strata: Sequence[ArrayLike], **given: Any) -> tuple[float, float]:
    """The bootstrap interval that a report gives: none unless every stratum has enough seeds."""
    return bootstrap_interval(*strata, **given) if min(map(np.size, strata)) >= MIN_SEEDS else (math.nan, math.nan)


def welch(a: Sample, b: Sample) -> float:
    """Two-sided p of equal means without assuming equal variances; NaN where a side has fewer than two runs."""
    if min(a.runs, b.runs) < 2:
        return math.nan
    var_a, var_b = a.deviation**2 / a.runs, b.deviation**2 / b.runs
    if var_a + var_b == 0:
        return 1.0 if a.mean == b.mean else 0.0
    t = (a.mean - b.mean) / math.sqrt(var_a + var_b)
    freedom = (var_a + var_b) ** 2 / (var_a**2 / (a.runs - 1) + var_b**2 / (b.runs - 1))
    return student_p(t, freedom)


def student_p(t: float, freedom: float) -> float:
    """P(|T| > |t|) of Student's distribution. With T = √ν tan θ the density is proportional to cos^(ν-1) θ; it is
    integrated from θ to π/2 by tanh-sinh quadrature, exact to rounding."""
    u = np.linspace(-4, 4, 801)
    squeeze = np.exp(-np.pi * np.sinh(u))
    angle = math.atan2(math.sqrt(freedom), abs(t)) / (1 + squeeze)  # from π/2
    weight = angle * np.pi * np.cosh(u) * squeeze / (1 + squeeze) * (u[1] - u[0])
    front = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) * 2 / math.sqrt(math.pi)
    return min(1.0, float(front * (weight * np.sin(angle) ** (freedom - 1)).sum()))


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p values, in the given order: the k-th smallest of m times m - k, never below a smaller one's. NaN stays
    NaN and does not count as a test."""
    adjusted = [math.nan] * len(p_values)
    tested = sorted((p, index) for index, p in enumerate(p_values) if not math.isnan(p))
    highest = 0.0
    for rank, (p, index) in enumerate(tested):
        adjusted[index] = highest = max(highest, min(1.0, p * (len(tested) - rank)))
    return adjusted


def thin(column: Scores, points: int = CURVE_POINTS) -> Scores:
    """Averages over at most `points` equal shares of a column; NaN where a share has no value."""
    count = min(points, len(column))
    share = np.arange(len(column)) * count // len(column)
    known = np.isfinite(column)
    totals = np.bincount(share[known], weights=column[known], minlength=count)
    numbers = np.bincount(share[known], minlength=count)
    return np.divide(totals, numbers, out=np.full(count, np.nan), where=numbers > 0)


def at_step(x: Scores, y: Scores, steps: float) -> float:
    """Mean of a thinned curve over the last twentieth of `steps`, at least its last point by then; NaN before it."""
    reached = np.isfinite(y) & (x <= steps * (1 + 1e-9))
    last = y[reached & (x > 0.95 * steps)] if (reached & (x > 0.95 * steps)).any() else y[reached][-1:]
    return float(last.mean()) if len(last) else math.nan


@dataclass(frozen=True)
class Band:
    """Statistics over the runs of one method, `[points]` each. Beyond the end of a run, over the longer ones."""

    x: Scores
    single: dict[str, Scores]
    """The runs by name; NaN outside of a run."""
    mean: Scores
    deviation: Scores
    """Sample deviation; 0 for a single run."""
    iqm: Scores
    low: Scores
    """Bounds of the 95 % bootstrap interval of the IQM; NaN where too few runs have a value."""
    high: Scores
    runs: Scores
    """How many runs have a value."""


def bands(groups: Mapping[str, Mapping[str, Curve]], min_runs: float = MIN_SEEDS) -> dict[str, Band]:
    """Average the curves of each group, gaps bridged, on a grid that all share. Curves with fewer than two points are
    left out, and so are groups without any other."""
    known: dict[str, dict[str, Curve]] = {}
    for name, group in groups.items():
        kept = {run: np.isfinite(x) & np.isfinite(y) for run, (x, y) in group.items()}
        curves = {run: (x[kept[run]], y[kept[run]]) for run, (x, y) in group.items() if kept[run].sum() > 1}
        known |= {name: curves} if curves else {}
    ends = [x[[0, -1]] for curves in known.values() for x, _ in curves.values()]
    grid = np.linspace(np.min(ends), np.max(ends), GRID_POINTS) if ends else np.empty(0)
    found: dict[str, Band] = {}
    for name, curves in known.items():
        single = {run: np.interp(grid, x, y, left=np.nan, right=np.nan) for run, (x, y) in curves.items()}
        found[name] = _band(grid, single, min_runs)
    return found


def _band(grid: Scores, single: dict[str, Scores], min_runs: float) -> Band:
    """Statistics over runs, separately for each set of runs that have values."""
    columns, values = np.full((6, len(grid)), np.nan), np.array([*single.values()])
    present = np.isfinite(values)
    for pattern in np.unique(present, axis=1).T:
        where = (present == pattern[:, None]).all(axis=0)
        stretch = values[pattern][:, where].T  # [points, runs]
        columns[5, where] = count = stretch.shape[1]
        if count:
            spread = stretch.std(axis=-1, ddof=1) if count > 1 else np.zeros(len(stretch))
            columns[:3, where] = stretch.mean(axis=-1), spread, interquartile_mean(stretch)
        if count >= max(2, min_runs):
            columns[3:5, where] = bootstrap_interval(stretch, resamples=1000)
    return Band(grid, single, *columns)
