"""Curves of a study's runs."""

import statistics
from pathlib import Path
from typing import Any

from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from studies.running import Rows


def panels(count: int) -> tuple[Any, list[Axes]]:
    figure, axes = plt.subplots(1, count, figsize=(12, 3.5), layout="constrained")
    for axis in axes:
        axis.grid(alpha=0.3)
    return figure, list(axes)


def save(figure: Any, path: Path) -> None:
    figure.savefig(path, dpi=110)
    plt.close(figure)


def draw_seeds(axis: Axes, rows: Rows, x: str, column: str, colour: str, label: str) -> None:
    """A line per seed, one of them named."""
    for number, seed in enumerate(sorted({row["seed"] for row in rows})):
        points = [row for row in rows if row["seed"] == seed and row[column]]
        across, up = ([float(point[name]) for point in points] for name in (x, column))
        axis.plot(across, up, color=colour, alpha=0.8, label=None if number else label)


def draw_mean(axis: Axes, rows: Rows, column: str, colour: str, label: str) -> None:
    """The mean over seeds, against millions of steps."""
    points: dict[int, list[float]] = {}
    for row in rows:
        if row[column]:
            points.setdefault(int(row["env_steps"]), []).append(float(row[column]))
    steps = sorted(points)
    axis.plot(
        [step / 1e6 for step in steps], [statistics.mean(points[step]) for step in steps], color=colour, label=label
    )
