"""Figures for papers and slides at their printed size, each as PDF, SVG and PNG, by matplotlib."""

import math
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, NullLocator

from echelon.report.comparison import aggregates, contested
from echelon.report.contents import Contents
from echelon.report.curves import Band, thin
from echelon.report.methods import Method
from echelon.report.palette import COLOURS, DASHES, Look, looks
from echelon.report.payload import policy_metrics, throughput
from echelon.report.reading import Run

AXIS_NAMES = {"env_steps": "environment steps", "wall_s": "seconds of training", "gradient_steps": "gradient steps"}
METRIC_NAMES = {
    "is_deviation": "IS deviation",
    "ess": "ESS",
    "kl/follower_to_leader": "KL to the leader",
    "adversary/loss": "discriminator loss",
}
STYLE: Any = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.5,
    "legend.frameon": False,
    "text.parse_math": False,  # a $ in a name is a $
    "pdf.fonttype": 42,  # TrueType: journals refuse Type 3
    "svg.fonttype": "none",
    "svg.hashsalt": "echelon",  # The same runs give the same bytes.
}
MAX_PANELS = 4
"""Panels in a row at most."""
MIN_PANEL_INCHES = 1.3
GREYS = (("0.35", ""), ("0.8", "////"), ("0.65", ""), ("0.95", "...."), ("0.1", ""), ("0.9", "xxxx"))
"""Fill and hatching of the parts of an iteration: colours are the methods'."""
LETTER_INCHES, LINE_INCHES = 0.062, 0.165
"""About the width of a letter of 8 pt, and the height of a line in a legend."""


def write_figures(contents: Contents, folder: Path, width: float) -> int:
    """Write every figure that the runs have data for into `folder`, `width` inches wide; how many."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = 0
    with rc_context(STYLE):
        for name, figure in _figures(contents, width):
            save_figure(figure, folder / name)
            drawn += 1
    return drawn


def save_figure(figure: Figure, path: Path) -> None:
    """Write `path` with the endings png, pdf and svg."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.draw_without_rendering()
    figure.set_layout_engine(None)  # laid out once for all of them
    for suffix, dates in (("png", {}), ("pdf", {"CreationDate": None}), ("svg", {"Date": None})):
        figure.savefig(path.with_name(f"{path.name}.{suffix}"), dpi=200, metadata=dates)


def _figures(contents: Contents, width: float) -> Iterator[tuple[str, Figure]]:
    """Names and figures: one statistic each, all tasks together, and where there are several a file per task too."""

    def each(name: str, tasks: list[str], metric: str, axis: str, statistic: str) -> Iterator[tuple[str, Figure]]:
        if tasks:
            yield name, _curves(contents, tasks, metric, axis, statistic, width)
        for task in tasks if len(tasks) > 1 else ():
            yield f"{name}_{task}", _curves(contents, [task], metric, axis, statistic, width)

    scored = _logged(contents, contents.score)
    for statistic in ("mean", "iqm"):
        yield from each(f"curves_env_steps_{statistic}", scored, contents.score, "env_steps", statistic)
    for axis in ("wall_s", "gradient_steps"):
        if any(axis in run.columns for run in contents.runs):
            yield f"curves_{axis}_mean", _curves(contents, scored, contents.score, axis, "mean", width)
    for metric in METRIC_NAMES:
        figure = method_curves(contents, metric, width)
        if figure is not None:
            yield metric.replace("/", "_"), figure
    yield from kl_figures(contents, width)
    if len(contested(contents)) > 1 and len(aggregates(contents)) > 1:
        yield "aggregate", _aggregate(contents, width)
    first = _first_of_each(contents)
    several = [(method, run) for method, run in first if policy_metrics(run)[0]]
    if several:
        yield "policies", _policies(several, width)
    timed = [run for _, run in first if throughput(run)["parts"]]
    if timed:
        yield "throughput", _throughput(timed, width)


def _logged(contents: Contents, metric: str) -> list[str]:
    """Tasks of which a run has the metric."""
    known = {run.task for run in contents.runs if metric in run.columns and np.isfinite(run.columns[metric]).any()}
    return [task for task in contents.tasks if task in known]


def method_curves(contents: Contents, metric: str, width: float) -> Figure | None:
    """Mean and deviation of a metric over environment steps, a panel per task that has it."""
    tasks = _logged(contents, metric)
    return _curves(contents, tasks, metric, "env_steps", "mean", width) if tasks else None


def kl_figures(contents: Contents, width: float) -> Iterator[tuple[str, Figure]]:
    """KL maps of every task that was measured, a file each."""
    for task in contents.tasks:
        mapped = [(method, _mapped(contents, method, task)) for method in contents.methods]
        mapped = [(method, runs) for method, runs in mapped if runs]
        if mapped:
            yield f"kl_maps_{task}", _kl_maps(mapped, width)


def _panels(number: int, width: float, height: float, **more: Any) -> tuple[Figure, list[Any]]:
    """A figure with so many panels, at most four in a row and none narrower than can be read; unused places empty."""
    columns = min(number, MAX_PANELS, max(1, int(width / MIN_PANEL_INCHES)))
    rows = -(-number // columns)
    figure = Figure(figsize=(width, rows * height + 0.35), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, **more).ravel()
    for axes in grid[number:]:
        axes.set_axis_off()
    return figure, list(grid[:number])


def _label_below(panels: Sequence[Any], text: str) -> None:
    """Name the horizontal axis below the lowest panel of each column."""
    columns = panels[0].get_gridspec().ncols
    for axes in panels[-columns:]:
        axes.set_xlabel(text)


def _height(number: int, width: float) -> float:
    """Height of a panel: two thirds of its width, but never too low to be read."""
    columns = min(number, MAX_PANELS, max(1, int(width / MIN_PANEL_INCHES)))
    return min(2.8, max(1.4, 0.68 * width / columns))


def _curves(contents: Contents, tasks: list[str], metric: str, axis: str, statistic: str, width: float) -> Figure:
    """A panel per task: mean and deviation, as in the paper, or the IQM with its 95 % interval."""
    figure, panels = _panels(len(tasks), width, _height(len(tasks), width))
    named: dict[str, Any] = {}
    for axes, task in zip(panels, tasks, strict=True):
        for method, look in zip(contents.methods, looks(contents.methods), strict=True):
            curve = contents.band(method, task, metric, axis)
            if curve is not None:
                _draw_band(axes, curve, statistic, look, method.name)
        if metric == "adversary/loss":
            _mark_chance(axes, [run for run in contents.runs if run.task == task and metric in run.columns])
        axes.set_title(task)
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.locator_params(nbins=4)
        named |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    _label_below(panels, AXIS_NAMES[axis])
    name = METRIC_NAMES.get(metric, metric.removesuffix("/leader").replace("_", " "))
    panels[0].set_ylabel(f"training {name}" if metric.endswith("/leader") else name)
    _legend(figure, named, width)
    return figure


def _draw_band(axes: Any, curve: Band, statistic: str, look: Look, name: str) -> None:
    """A method's line and band; pale, with dashed edges, where fewer of its runs go on."""
    if statistic == "mean":
        centre, low, high = curve.mean, curve.mean - curve.deviation, curve.mean + curve.deviation
    else:
        centre, low, high = curve.iqm, curve.low, curve.high
    colour = COLOURS[look.colour]
    whole = curve.runs == curve.runs.max()
    style: dict[str, Any] = {"color": colour, "ls": DASHES[look.dash]}
    axes.plot(curve.x, np.where(whole, centre, np.nan), lw=1.2, label=name, **style)
    axes.fill_between(curve.x, low, high, where=whole, color=colour, alpha=0.18, lw=0)
    if not whole.all():
        few = ~whole | ~np.roll(whole, 1) | ~np.roll(whole, -1)
        axes.plot(curve.x, np.where(few, centre, np.nan), lw=0.7, alpha=0.6, **style)
        for edge in (low, high):
            axes.plot(curve.x, np.where(few, edge, np.nan), lw=0.4, ls=(0, (3, 3)), color=colour, alpha=0.6)


def _legend(figure: Figure, named: dict[str, Any], width: float) -> None:
    """Below the panels, in as many columns as the names leave room for; the figure grows by what it takes."""
    if len(named) > 1:
        names = [wrapped(name, width - 0.45) for name in named]
        longest = max(len(line) for name in names for line in name.splitlines())
        columns = max(1, min(len(names), int(width / (0.42 + LETTER_INCHES * longest))))
        rows = [names[k::columns] for k in range(columns)]
        lines = max(sum(name.count("\n") + 1 for name in column) for column in rows)
        figure.set_figheight(figure.get_figheight() + LINE_INCHES * (lines - 1))
        figure.legend(named.values(), names, loc="outside lower center", ncols=columns, columnspacing=1.2)


def wrapped(name: str, inches: float) -> str:
    """A name wrapped to lines of at most `inches`."""
    return "\n".join(textwrap.wrap(name, max(8, int(inches / LETTER_INCHES)), break_on_hyphens=False))


def _mark_chance(axes: Any, runs: Sequence[Run]) -> None:
    """Mark ln M, the loss of a discriminator that guesses."""
    for size in {run.config.num_policies for run in runs}:
        axes.axhline(math.log(size), color="0.4", lw=0.8, ls=":", label=f"ln {size}, a blind guess")


def _first_of_each(contents: Contents) -> list[tuple[Method, Run]]:
    """The run with the lowest seed of each task and method."""
    groups = [(method, contents.counted(method, task)) for task in contents.tasks for method in contents.methods]
    return [(method, min(group, key=lambda run: run.config.seed)) for method, group in groups if group]


def _mapped(contents: Contents, method: Method, task: str) -> list[Run]:
    """Runs with KL maps of one size, those of the first."""
    runs = [run for run in contents.counted(method, task) if run.distances]
    return [run for run in runs if run.config.num_policies == runs[0].config.num_policies]


def _kl_maps(mapped: list[tuple[Method, list[Run]]], width: float) -> Figure:
    """A row per method: KL maps at the start, halfway and at the end, averaged over seeds, nearest policies circled."""
    moments = ("start", "halfway", "end")
    maps = {method.name: [_mean_map(runs, k) for k in range(len(moments))] for method, runs in mapped}
    side = min(1.35, (width - 1.0) / len(moments))
    figure = Figure(figsize=(min(width, 3 * side + 1.0), side * len(mapped) + 0.4), layout="constrained")
    grid = figure.subplots(len(mapped), len(moments), squeeze=False)
    values = np.concatenate([np.ravel(matrix) for row in maps.values() for matrix in row])
    positive = values[np.isfinite(values) & (values > 0)]
    norm = LogNorm(*((positive.min(), positive.max()) if len(positive) else (0.1, 1)))
    image: Any = None
    for row, (name, matrices) in zip(grid, maps.items(), strict=True):
        for axes, matrix in zip(row, matrices, strict=True):
            image = _draw_map(axes, matrix, norm)
        row[0].set_ylabel(wrapped(name, side), fontsize=7 if len(name) < 16 else 5)
    for axes, moment in zip(grid[0], moments, strict=True):
        axes.set_title(moment)
    plain = FuncFormatter(lambda kl, _: f"{kl:g}")
    bar = figure.colorbar(image, ax=grid, label="KL from row to column", shrink=0.8, aspect=30, format=plain)
    bar.ax.yaxis.set_major_locator(LogLocator(subs=(1, 3)))
    bar.ax.yaxis.set_minor_locator(NullLocator())
    return figure


def _mean_map(runs: list[Run], moment: int) -> np.ndarray:
    """Matrix at the start (0), halfway (1) or the end (2) of training, averaged over runs."""
    chosen = [run.distances[round(moment * (len(run.distances) - 1) / 2)] for run in runs]
    return np.mean([line["kl"] for line in chosen], axis=0)


def _draw_map(axes: Any, matrix: np.ndarray, norm: LogNorm) -> Any:
    axes.grid(visible=False)
    others = np.where(np.eye(len(matrix), dtype=bool), np.inf, matrix)
    image = axes.imshow(np.where(matrix > 0, matrix, np.nan), cmap="viridis", norm=norm)
    axes.plot(others.argmin(axis=1), range(len(matrix)), "o", ms=30 / len(matrix), mfc="none", mec="white", mew=0.8)
    step = max(1, len(matrix) // 6)
    axes.set(xticks=range(0, len(matrix), step), yticks=range(0, len(matrix), step))
    axes.tick_params(length=0, labelsize=6)
    return image


def _aggregate(contents: Contents, width: float) -> Figure:
    """Left, the IQM of normalised scores with its interval; right, the performance profile."""
    found = aggregates(contents)
    style = {method.name: look for method, look in zip(contents.methods, looks(contents.methods), strict=True)}
    figure = Figure(figsize=(width, 1.5), layout="constrained")
    intervals, profile = figure.subplots(1, 2)
    highest = max(np.nanmax((1.0, one.iqm, one.interval.high)) for one in found)
    levels = np.linspace(0, highest, 201)
    for place, one in enumerate(found):
        look = style[one.method]
        colour = COLOURS[look.colour]
        intervals.plot(one.interval, (place, place), color=colour, lw=2.5, solid_capstyle="round")
        intervals.plot(one.iqm, place, "o", color=colour, ms=4)
        profile.plot(levels, one.profile(levels), color=colour, ls=DASHES[look.dash], lw=1.2)
    names = [wrapped(one.method, 0.35 * width) for one in found]
    figure.set_figheight(max(1.5, 0.14 * sum(name.count("\n") + 1 for name in names) + 0.08 * len(names) + 0.8))
    intervals.set(yticks=range(len(found)), yticklabels=names, xlabel="normalised score, IQM")
    intervals.invert_yaxis()
    profile.set(xlabel="normalised score", ylabel="share of runs above")
    return figure


def _policies(runs: list[tuple[Method, Run]], width: float) -> Figure:
    """Returns of all policies of each run, the leader's drawn on top."""
    figure, panels = _panels(len(runs), width, _height(len(runs), width))
    columns = panels[0].get_gridspec().ncols
    for axes, (method, run) in zip(panels, runs, strict=True):
        followers, leader = policy_metrics(run)
        for name in followers:
            axes.plot(thin(run, "env_steps"), thin(run, name), color=COLOURS[7], lw=0.5, alpha=0.7)
        axes.plot(thin(run, "env_steps"), thin(run, leader), color=COLOURS[0], lw=1.2)
        axes.set_title(f"{run.task}\n{wrapped(method.name, width / columns)}", fontsize=7)
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.locator_params(nbins=4)
    _label_below(panels, "environment steps")
    panels[0].set_ylabel("training return")
    return figure


def _throughput(runs: list[Run], width: float) -> Figure:
    """Seconds of an iteration by part, a bar per run."""
    figure = Figure(figsize=(width, 0.17 * len(runs) + 1.0), layout="constrained")
    axes = figure.subplots()
    found = [throughput(run)["parts"] for run in runs]
    left = np.zeros(len(runs))
    for number, part in enumerate(dict.fromkeys(part for parts in found for part in parts)):
        lengths = np.array([parts.get(part, 0.0) for parts in found])
        fill, hatch = GREYS[number % len(GREYS)]
        names = [run.name for run in runs]
        axes.barh(names, lengths, left=left, color=fill, hatch=hatch, edgecolor="0.3", lw=0.4, label=part)
        left += lengths
    axes.invert_yaxis()
    axes.set_xlabel("seconds of an iteration")
    _legend(figure, dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True)), width)
    return figure
