"""Mean, spread and intervals of several runs' curves, on any horizontal axis."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from echelon.report.reading import Run
from echelon.report.statistics import interquartile_mean

CURVE_POINTS = 300
"""Points of a thinned curve, each the mean of an equal share of the iterations."""
BAND_POINTS = 200
"""Points of the common grid on which runs are averaged."""
RESAMPLES = 1000

Column = NDArray[np.float64]


@dataclass(frozen=True)
class Band:
    """Statistics over the runs of one method, `[points]` each. Beyond the end of a run, over the longer ones."""

    x: Column
    mean: Column
    deviation: Column
    """Sample deviation; 0 for a single run."""
    iqm: Column
    low: Column
    """Bounds of the 95 % bootstrap interval of the IQM."""
    high: Column
    runs: Column
    """How many runs got that far."""


def at_step(x: Column, y: Column, steps: float) -> float:
    """Mean of a thinned curve over the last twentieth of `steps`, at least its last point by then; NaN before it."""
    reached = np.isfinite(y) & (x <= steps * (1 + 1e-9))
    if not reached.any():
        return float("nan")
    last = y[reached & (x > 0.95 * steps)]
    return float(last.mean() if len(last) else y[reached][-1])


def thin(run: Run, name: str, points: int = CURVE_POINTS) -> Column:
    """A metric of a run, averaged over at most `points` equal shares of its lines; NaN where a share has no value."""
    column = run.columns[name]
    count = min(points, len(column))
    share = np.arange(len(column)) * count // len(column)
    known = np.isfinite(column)
    totals = np.bincount(share[known], weights=column[known], minlength=count)
    numbers = np.bincount(share[known], minlength=count)
    return np.divide(totals, numbers, out=np.full(count, np.nan), where=numbers > 0)


def band(curves: Sequence[tuple[Column, Column]]) -> Band | None:
    """Average the curves `(x, y)` of the runs of one method; None if none has two points."""
    finite = [np.isfinite(x) & np.isfinite(y) for x, y in curves]
    known = [(x[kept], y[kept]) for (x, y), kept in zip(curves, finite, strict=True) if kept.sum() > 1]
    if not known:
        return None
    grid = np.linspace(min(x[0] for x, _ in known), max(x[-1] for x, _ in known), BAND_POINTS)
    values = np.array([np.interp(grid, x, y, left=np.nan, right=np.nan) for x, y in known])
    return _summary(grid, values)


def _summary(grid: Column, values: NDArray[np.float64]) -> Band:
    """Statistics over runs of `values [runs, points]`, separately for each set of runs that have values."""
    generator = np.random.default_rng(0)
    columns = np.full((6, len(grid)), np.nan)
    present = np.isfinite(values)
    for pattern in np.unique(present, axis=1).T:
        runs = values[pattern]
        if not len(runs):
            continue
        where = (present == pattern[:, None]).all(axis=0)
        stretch = runs[:, where].T  # [points, runs]
        drawn = stretch[:, generator.integers(len(runs), size=(RESAMPLES, len(runs)))]
        low, high = np.quantile(interquartile_mean(drawn), (0.025, 0.975), axis=-1)
        spread = stretch.std(axis=-1, ddof=1) if len(runs) > 1 else np.zeros(len(stretch))
        centres = stretch.mean(axis=-1), spread, interquartile_mean(stretch)
        columns[:, where] = *centres, low, high, np.full(len(stretch), len(runs))
    kept = present.any(axis=0)
    return Band(grid[kept], *columns[:, kept])


def reaches(curve: Band, score: float) -> float:
    """The x at which the mean first reaches `score`, linearly interpolated; NaN if it never does."""
    above = np.flatnonzero(curve.mean >= score)
    if not len(above):
        return float("nan")
    first = above[0]
    if first == 0:
        return float(curve.x[0])
    (x0, x1), (y0, y1) = curve.x[first - 1 : first + 1], curve.mean[first - 1 : first + 1]
    return float(x0 + (score - y0) / (y1 - y0) * (x1 - x0))
