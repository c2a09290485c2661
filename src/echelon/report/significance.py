"""Welch's t-test from means and deviations, and Holm's correction for multiple tests.

The test needs only means, deviations and numbers of runs, so it can be applied to published tables.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike


class Sample(NamedTuple):
    """Scores of one method on one task, as a table prints them."""

    mean: float
    deviation: float
    """Sample standard deviation (n - 1)."""
    runs: int


def sample(scores: ArrayLike) -> Sample:
    """Mean and deviation of scores `[runs]`; the deviation of a single run is NaN."""
    values = np.asarray(scores, dtype=np.float64)
    deviation = float(values.std(ddof=1)) if len(values) > 1 else math.nan
    return Sample(float(values.mean()) if len(values) else math.nan, deviation, len(values))


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
    """Adjusted p values, in the given order: the k-th smallest of m times m - k, never below a smaller one's.

    NaN stays NaN and does not count as a test.
    """
    adjusted = [math.nan] * len(p_values)
    tested = sorted((p, index) for index, p in enumerate(p_values) if not math.isnan(p))
    highest = 0.0
    for rank, (p, index) in enumerate(tested):
        highest = max(highest, min(1.0, p * (len(tested) - rank)))
        adjusted[index] = highest
    return adjusted


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """I_x(a, b) by the continued fraction, on the side where it converges quickly."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(1 - x, b, a)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(log_front) * _beta_fraction(x, a, b) / a


def _beta_fraction(x: float, a: float, b: float) -> float:
    """Lentz's evaluation of the fraction 1/(1 + d₁/(1 + d₂/(1 + ...)))."""
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
    return value
