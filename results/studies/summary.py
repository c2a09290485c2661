"""What the runs of a study say together: a table, chances of improvement, and learning curves."""

import statistics
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from command import markdown
from running import Study, read

from echelon.report.statistics import Scores, bootstrap_interval, interquartile_mean, probability_of_improvement

Column = Mapping[str, Scores]
"""A figure's values by method, in order of seeds; NaN where a run has none."""


def read_column(folder: Path, name: str) -> Column:
    rows = sorted(read(folder / "runs.csv"), key=lambda row: int(row["seed"]))
    methods = dict.fromkeys(row["method"] for row in rows)
    return {
        method: np.array([float(row.get(name) or "nan") for row in rows if row["method"] == method])
        for method in methods
    }


def table(study: Study, folder: Path) -> str:
    """Every figure of every method, then the goals and the pairs."""
    lines: list[list[str]] = []
    for name in study.shown:
        for method, values in read_column(folder, name).items():
            known = values[np.isfinite(values)]
            if len(known):
                lines.append([name, method, str(len(known)), *spread(known)])
    parts = [markdown(("figure", "method", "seeds", "mean ± deviation", "IQM (95 %)", "least, most"), lines)]
    reached = [
        [goal, method, f"{int((values >= least).sum())} of {len(values)}"]
        for goal, (name, least) in study.goals.items()
        for method, values in read_column(folder, name).items()
    ]
    if reached:
        parts.append(markdown(("reached", "method", "runs"), reached))
    columns = [read_column(folder, name) for name in ("return", "successes")] if study.pairs else []
    chances = [
        [f"{a} over {b}", *(chance(column[a], column[b]) for column in columns)]
        for a, b in study.pairs
        if a in columns[0] and b in columns[0]
    ]
    if chances:
        parts.append(markdown(("probability of improvement (95 %)", "by return", "by successes"), chances))
    return "\n\n".join(parts)


def spread(known: Scores) -> list[str]:
    deviation, middle = 0.0, f"{float(interquartile_mean(known)):.4g}"
    if len(known) > 1:  # of one, nothing is known about others
        low, high = bootstrap_interval(known)
        deviation, middle = statistics.stdev(known), f"{middle} ({low:.4g} to {high:.4g})"
    return [f"{known.mean():.4g} ± {deviation:.2g}", middle, f"{known.min():.4g}, {known.max():.4g}"]


def chance(ours: Scores, theirs: Scores) -> str:
    low, high = bootstrap_interval(ours, theirs, statistic=probability_of_improvement)
    return f"{probability_of_improvement(ours, theirs):.2f} ({low:.2f} to {high:.2f})"


def draw(study: Study, folder: Path) -> None:
    """The first three metrics over training, each the mean over a method's seeds, as `curves.png`."""
    import matplotlib.pyplot as plt

    rows, names = read(folder / "curves.csv"), study.columns[:3]
    figure, axes = plt.subplots(1, len(names), figsize=(12, 3.5), layout="constrained", squeeze=False)
    for axis, name in zip(axes[0], names, strict=True):
        for method in dict.fromkeys(row["method"] for row in rows):
            points: dict[int, list[float]] = {}
            for row in rows:
                if row["method"] == method and row[name]:
                    points.setdefault(int(row["env_steps"]), []).append(float(row[name]))
            steps = sorted(points)
            axis.plot([step / 1e6 for step in steps], [statistics.mean(points[step]) for step in steps], label=method)
        axis.set(title=name, xlabel="million environment steps")
        axis.grid(alpha=0.3)
    axes[0][0].legend(frameon=False, fontsize=7)
    figure.savefig(folder / "curves.png", dpi=110)
    plt.close(figure)
