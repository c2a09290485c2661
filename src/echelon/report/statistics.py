"""Scores of several runs: means, tests and intervals. Pure functions of NumPy arrays.

A **stratum** holds the scores of runs that differ only in the seed: one method on one task. `interquartile_mean` and
`probability_of_improvement` take strata `[..., runs]` and reduce the last dimension, so that `bootstrap_interval` can
evaluate them for all resamples at once. The choices are those of Agarwal et al. 2021, *Deep Reinforcement Learning at
the Edge of the Statistical Precipice*; Welch's test needs only means, deviations and numbers of runs, so it can be
applied to published tables.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Scores = NDArray[np.float64]

MIN_SEEDS = 5
"""With fewer seeds a report gives no interval and prints nothing in bold: both would claim too much."""


class Interval(NamedTuple):
    """A confidence interval; NaN where there is none."""

    low: float = math.nan
    high: float = math.nan


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
) -> Interval:
    """Percentile interval of `statistic(*strata)`, each stratum `[runs]` resampled with replacement within itself; NaN
    where all have one run, which leaves nothing to resample."""
    arrays = [np.asarray(stratum, dtype=np.float64) for stratum in strata]
    if all(array.size < 2 for array in arrays):
        return Interval()
    generator = np.random.default_rng(seed)
    drawn = [array[generator.integers(len(array), size=(resamples, len(array)))] for array in arrays]
    tail = (1 - confidence) / 2
    low, high = np.quantile(statistic(*drawn), (tail, 1 - tail))
    return Interval(float(low), float(high))


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
    """P(|T| > |t|) of Student's distribution: the regularised incomplete beta I_x(ν/2, 1/2) at x = ν/(ν + t²)."""
    return _incomplete_beta(freedom / (freedom + t * t), freedom / 2, 0.5)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p values, in the given order: the k-th smallest of m times m - k, never below a smaller one's. NaN stays
    NaN and does not count as a test."""
    adjusted = [math.nan] * len(p_values)
    tested = sorted((p, index) for index, p in enumerate(p_values) if not math.isnan(p))
    highest = 0.0
    for rank, (p, index) in enumerate(tested):
        highest = max(highest, min(1.0, p * (len(tested) - rank)))
        adjusted[index] = highest
    return adjusted


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """I_x(a, b) by Lentz's evaluation of its continued fraction, on the side where that converges quickly."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(1 - x, b, a)
    tiny = 1e-300
    c, d = 1.0, 1 / max(1 - (a + b) * x / (a + 1), tiny)
    value = d
    for m in range(1, 300):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 / (1 + term * d or tiny)
            c = 1 + term / c or tiny
            value *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(log_front) * value / a
