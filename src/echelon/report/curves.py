"""Mean, spread and intervals of several runs' curves, on any horizontal axis."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from echelon.report.statistics import MIN_SEEDS, interquartile_mean

CURVE_POINTS = 300
"""Points of a thinned curve, each the mean of an equal share of the iterations."""
BAND_POINTS = 200
"""Points of the common grid on which runs are averaged."""
RESAMPLES = 1000

Column = NDArray[np.float64]
Curve = tuple[Column, Column]
"""x and y."""


@dataclass(frozen=True)
class Band:
    """Statistics over the runs of one method, `[points]` each. Beyond the end of a run, over the longer ones."""

    x: Column
    mean: Column
    deviation: Column
    """Sample deviation; 0 for a single run."""
    iqm: Column
    low: Column
    """Bounds of the 95 % bootstrap interval of the IQM; NaN where too few runs have a value."""
    high: Column
    runs: Column
    """How many runs have a value."""


def at_step(x: Column, y: Column, steps: float) -> float:
    """Mean of a thinned curve over the last twentieth of `steps`, at least its last point by then; NaN before it."""
    reached = np.isfinite(y) & (x <= steps * (1 + 1e-9))
    if not reached.any():
        return float("nan")
    last = y[reached & (x > 0.95 * steps)]
    return float(last.mean() if len(last) else y[reached][-1])


def thin(column: Column, points: int = CURVE_POINTS) -> Column:
    """Averages over at most `points` equal shares of a column; NaN where a share has no value."""
    count = min(points, len(column))
    share = np.arange(len(column)) * count // len(column)
    known = np.isfinite(column)
    totals = np.bincount(share[known], weights=column[known], minlength=count)
    numbers = np.bincount(share[known], minlength=count)
    return np.divide(totals, numbers, out=np.full(count, np.nan), where=numbers > 0)


def common_grid(curves: Sequence[Curve], points: int = BAND_POINTS) -> Column | None:
    """Places from the first to the last known point of any curve; None if none has two points."""
    known = [x[np.isfinite(x) & np.isfinite(y)] for x, y in curves]
    known = [x for x in known if len(x) > 1]
    return np.linspace(min(x[0] for x in known), max(x[-1] for x in known), points) if known else None


def on_grid(curve: Curve, grid: Column) -> Column:
    """Interpolate a curve, gaps bridged; NaN outside of it, and everywhere if it has fewer than two points."""
    kept = np.isfinite(curve[0]) & np.isfinite(curve[1])
    x, y = curve[0][kept], curve[1][kept]
    return np.interp(grid, x, y, left=np.nan, right=np.nan) if len(x) > 1 else np.full(len(grid), np.nan)


def band(curves: Sequence[Curve], min_runs: int = MIN_SEEDS) -> Band | None:
    """Average the curves of the runs of one method; None if none has two points."""
    grid = common_grid(curves)
    if grid is None:
        return None
    found = summary(grid, np.array([on_grid(curve, grid) for curve in curves]), min_runs)
    kept = found.runs > 0
    return Band(*(getattr(found, name)[kept] for name in Band.__dataclass_fields__))


def summary(grid: Column, values: Column, min_runs: int = MIN_SEEDS) -> Band:
    """Statistics over runs of `values [runs, points]`, separately for each set of runs that have values."""
    generator = np.random.default_rng(0)
    columns = np.full((6, len(grid)), np.nan)
    present = np.isfinite(values)
    for pattern in np.unique(present, axis=1).T:
        where = (present == pattern[:, None]).all(axis=0)
        stretch = values[pattern][:, where].T  # [points, runs]
        count = stretch.shape[1]
        columns[5, where] = count
        if count:
            spread = stretch.std(axis=-1, ddof=1) if count > 1 else np.zeros(len(stretch))
            columns[:3, where] = stretch.mean(axis=-1), spread, interquartile_mean(stretch)
        if count >= max(2, min_runs):
            drawn = stretch[:, generator.integers(count, size=(RESAMPLES, count))]
            columns[3:5, where] = np.quantile(interquartile_mean(drawn), (0.025, 0.975), axis=-1)
    return Band(grid, *columns)
