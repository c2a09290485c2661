"""Aggregate scores of several runs, with confidence intervals. Pure functions of NumPy arrays.

A **stratum** holds the scores of runs that differ only in the seed: one method on one task. Every
statistic here takes strata as separate arguments, `[..., runs]` each, and reduces the last dimension, so that
`bootstrap_interval` can evaluate it for all resamples at once.

The choices are those of Agarwal et al. 2021, *Deep Reinforcement Learning at the Edge of the Statistical Precipice*.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Scores = NDArray[np.float64]


class Interval(NamedTuple):
    """A confidence interval."""

    low: float
    high: float


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
    if all(len(np.atleast_1d(stratum)) < 2 for stratum in strata):
        return Interval(math.nan, math.nan)
    generator = np.random.default_rng(seed)
    drawn = []
    for stratum in strata:
        scores = np.asarray(stratum, dtype=np.float64)
        drawn.append(scores[generator.integers(len(scores), size=(resamples, len(scores)))])
    tail = (1 - confidence) / 2
    low, high = np.quantile(statistic(*drawn), (tail, 1 - tail))
    return Interval(float(low), float(high))
