"""Figures for papers and slides at their printed size, each as PDF and PNG, by matplotlib."""

import textwrap
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, NullLocator

from echelon.report.contents import Contents
from echelon.report.methods import COLOURS, Look, looks
from echelon.report.statistics import Band

METRIC_NAMES = {
    "is_deviation": "IS deviation",
    "ess": "ESS",
    "kl/follower_to_leader": "KL to the leader",
    "adversary/loss": "discriminator loss",
}
STYLE: Any = {
    **{f"{name}size": 8 for name in ("font.", "axes.title", "axes.label", "legend.font")},
    **{f"{name}.labelsize": 7 for name in ("xtick", "ytick")},
    **{"axes.spines.top": False, "axes.spines.right": False, "axes.linewidth": 0.6, "legend.frameon": False},
    **{"axes.grid": True, "grid.alpha": 0.25, "grid.linewidth": 0.5},
    "text.parse_math": False,  # a $ in a name is a $
    "pdf.fonttype": 42,  # TrueType: journals refuse Type 3
}
MAX_PANELS, MIN_PANEL_INCHES = 4, 1.3
"""Panels in a row at most, and the width below which none can be read."""
LETTER_INCHES, LINE_INCHES = 0.062, 0.165
"""About the width of a letter of 8 pt, and the height of a line in a legend."""
MOMENTS = ("start", "halfway", "end")


def write_figures(contents: Contents, folder: Path, width: float) -> int:
    """Write every figure that the runs have data for into `folder`, `width` inches wide; returns how many."""
    folder.mkdir(parents=True, exist_ok=True)
    with rc_context(STYLE):
        named = {f"curves_{kind}": curves(contents, contents.score, kind, width) for kind in ("mean", "iqm")}
        named |= {name: curves(contents, name, "mean", width) for name in METRIC_NAMES}
        named |= {f"kl_maps_{task}": kl_maps(contents, task, width) for task in contents.tasks}
        drawn = {name.replace("/", "_"): figure for name, figure in named.items() if figure is not None}
        for name, figure in drawn.items():
            figure.draw_without_rendering()
            figure.set_layout_engine(None)  # laid out once for both
            for suffix, dates in (("png", {}), ("pdf", {"CreationDate": None})):  # the same runs give the same bytes
                figure.savefig(folder / f"{name}.{suffix}", dpi=200, metadata=dates)
    return len(drawn)


def panels(number: int, width: float) -> tuple[Figure, list[Any]]:
    """A figure with `number` panels, at most four in a row and none too narrow to read; unused places stay empty."""
    columns = min(number, MAX_PANELS, max(1, int(width / MIN_PANEL_INCHES)))
    rows, height = -(-number // columns), min(2.8, max(1.4, 0.68 * width / columns))
    figure = Figure(figsize=(width, rows * height + 0.35), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in grid[number:]:
        axes.set_axis_off()
    return figure, list(grid[:number])


def curves(contents: Contents, metric: str, statistic: str, width: float) -> Figure | None:
    """A panel per task over environment steps: mean and deviation, as in the paper, or the IQM with its 95 % interval;
    None if no run has the metric."""
    found = {task: bands for task in contents.tasks if (bands := contents.bands(task, metric))}
    if not found:
        return None
    figure, places = panels(len(found), width)
    style, named = looks(contents.methods), dict[str, Any]()
    for axes, (task, bands) in zip(places, found.items(), strict=True):
        for name, band in bands.items():
            _draw_band(axes, band, statistic, style[name], name)
        for level, text in contents.marks(task, metric):
            axes.axhline(level, color="0.4", lw=0.8, ls=":", label=text)
        axes.set_title(task)
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.locator_params(nbins=4)
        named |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    for axes in places[-places[0].get_gridspec().ncols :]:
        axes.set_xlabel("environment steps")
    places[0].set_ylabel(METRIC_NAMES.get(metric, f"training {contents.score_name}"))
    _legend(figure, named, width)
    return figure


def _draw_band(axes: Any, one: Band, statistic: str, look: Look, name: str) -> None:
    """A method's line and band; pale, without a band, beyond the end of its shorter runs."""
    centre, low, high = one.iqm, one.low, one.high
    if statistic == "mean":
        centre, low, high = one.mean, one.mean - one.deviation, one.mean + one.deviation
    style: dict[str, Any] = {"color": COLOURS[look.colour], "ls": (0, look.dash)}
    whole = one.runs == one.runs.max()
    axes.plot(one.x, centre, lw=0.7, alpha=0.6, **style)
    axes.plot(one.x, np.where(whole, centre, np.nan), lw=1.2, label=name, **style)
    axes.fill_between(one.x, low, high, where=whole, color=COLOURS[look.colour], alpha=0.18, lw=0)


def _legend(figure: Figure, named: dict[str, Any], width: float) -> None:
    """Draw the legend below the panels, in as few rows as its names allow, and enlarge the figure for it."""
    if len(named) > 1:
        names = [wrapped(name, width - 0.45) for name in named]
        longest = max(len(line) for name in names for line in name.splitlines())
        columns = max(1, min(len(names), int(width / (0.42 + LETTER_INCHES * longest))))
        lines = max(sum(name.count("\n") + 1 for name in names[k::columns]) for k in range(columns))
        figure.set_figheight(figure.get_figheight() + LINE_INCHES * (lines - 1))
        figure.legend(named.values(), names, loc="outside lower center", ncols=columns, columnspacing=1.2)


def wrapped(name: str, inches: float) -> str:
    """A name wrapped to lines of at most `inches`."""
    return "\n".join(textwrap.wrap(name, max(8, int(inches / LETTER_INCHES)), break_on_hyphens=False))


def kl_maps(contents: Contents, task: str, width: float) -> Figure | None:
    """A row per method: KL maps at the start, halfway and at the end, averaged over seeds, nearest policies circled;
    None if none was measured."""
    maps: dict[str, list[np.ndarray]] = {}
    for method in contents.methods:
        if runs := [run.distances for run in contents.mapped(method, task)]:
            places = [[lines[round(k * (len(lines) - 1) / 2)]["kl"] for lines in runs] for k in range(len(MOMENTS))]
            maps[method.name] = [np.mean(matrices, axis=0) for matrices in places]
    if not maps:
        return None
    side = min(1.35, (width - 1.0) / len(MOMENTS))
    figure = Figure(figsize=(min(width, 3 * side + 1.0), side * len(maps) + 0.4), layout="constrained")
    grid = figure.subplots(len(maps), len(MOMENTS), squeeze=False)
    values = np.concatenate([np.ravel(matrix) for row in maps.values() for matrix in row])
    positive = values[np.isfinite(values) & (values > 0)]
    norm = LogNorm(*((positive.min(), positive.max()) if len(positive) else (0.1, 1)))
    image: Any = None
    for row, (name, matrices) in zip(grid, maps.items(), strict=True):
        for axes, matrix in zip(row, matrices, strict=True):
            image = _draw_map(axes, matrix, norm)
        row[0].set_ylabel(wrapped(name, side), fontsize=7 if len(name) < 16 else 5)
    for axes, moment in zip(grid[0], MOMENTS, strict=True):
        axes.set_title(moment)
    plain = FuncFormatter(lambda kl, _: f"{kl:g}")
    bar = figure.colorbar(image, ax=grid, label="KL from row to column", shrink=0.8, aspect=30, format=plain)
    bar.ax.yaxis.set_major_locator(LogLocator(subs=(1, 3)))
    bar.ax.yaxis.set_minor_locator(NullLocator())
    return figure


def _draw_map(axes: Any, matrix: np.ndarray, norm: LogNorm) -> Any:
    axes.grid(visible=False)
    others = np.where(np.eye(len(matrix), dtype=bool) | np.isnan(matrix), np.inf, matrix)
    image = axes.imshow(np.where(matrix > 0, matrix, np.nan), cmap="viridis", norm=norm)
    known = np.flatnonzero(np.isfinite(others).any(axis=1))
    axes.plot(others.argmin(axis=1)[known], known, "o", ms=30 / len(matrix), mfc="none", mec="white", mew=0.8)
    step = max(1, len(matrix) // 6)
    axes.set(xticks=range(0, len(matrix), step), yticks=range(0, len(matrix), step))
    axes.tick_params(length=0, labelsize=6)
    return image
