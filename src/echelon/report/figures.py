"""Figures for papers and slides, each as PNG and PDF, by matplotlib."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from echelon.report.contents import Contents
from echelon.report.curves import thin
from echelon.report.palette import COLOURS, DASHES, colour_numbers
from echelon.report.payload import chosen_maps, policy_metrics, throughput
from echelon.report.reading import Run

AXIS_NAMES = {"env_steps": "environment steps", "wall_s": "seconds of training", "gradient_steps": "gradient steps"}
METRIC_NAMES = {"is_deviation": "IS deviation", "ess": "effective sample size", "adversary/loss": "discriminator loss"}
STYLE: Any = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "axes.titlesize": 10,
    "text.parse_math": False,  # a $ in a name is a $
}
MAPS_PER_RUN = 3
"""KL maps shown per run: first, middle and last."""


def write_figures(contents: Contents, folder: Path) -> None:
    """Write every figure that the runs have data for into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    with rc_context(STYLE):
        for name, figure in _figures(contents):
            for suffix in ("png", "pdf"):
                # Without a date, the same runs give the same bytes.
                metadata = {"CreationDate": None} if suffix == "pdf" else {}
                figure.savefig(folder / f"{name}.{suffix}", dpi=160, metadata=metadata)
                figure.set_layout_engine("none")  # The PDF reuses the layout computed for the PNG.


def _figures(contents: Contents) -> Iterator[tuple[str, Figure]]:
    for axis in AXIS_NAMES:
        if any(axis in run.columns for run in contents.runs):
            yield f"curves_{axis}", _curves(contents, contents.score, axis)
    for metric in METRIC_NAMES:
        if any(metric in run.columns for run in contents.runs):
            yield metric.replace("/", "_"), _curves(contents, metric, "env_steps")
    measured = [run for run in _first_of_each(contents) if run.distances]
    if measured:
        yield "kl_maps", _kl_maps(measured)
    several = [run for run in _first_of_each(contents) if policy_metrics(run)[0]]
    if several:
        yield "policies", _policies(several)
    yield "throughput", _throughput(_first_of_each(contents))


def _curves(contents: Contents, metric: str, axis: str) -> Figure:
    """Top: mean and deviation, as in the paper; bottom: the IQM with its 95 % interval."""
    tasks = [
        task for task in contents.tasks if any(run.task == task and metric in run.columns for run in contents.runs)
    ]
    figure = Figure(figsize=(max(4.2, 3.1 * len(tasks)), 5.4), layout="constrained")
    grid = figure.subplots(2, len(tasks), sharex="col", squeeze=False)
    for column, task in enumerate(tasks):
        _draw_methods(contents, grid[:, column], task, metric, axis)
        grid[0, column].set_title(task)
        grid[1, column].set_xlabel(AXIS_NAMES[axis])
        grid[1, column].xaxis.set_major_formatter(EngFormatter())
    name = METRIC_NAMES.get(metric, metric.removesuffix("/leader").replace("_", " "))
    grid[0, 0].set_ylabel(f"{name}\nmean ± deviation")
    grid[1, 0].set_ylabel(f"{name}\nIQM, 95 % interval")
    if metric == "adversary/loss":
        _mark_chance(grid, contents, tasks)
    named: dict[str, Any] = {}
    for axes in grid[0]:
        named |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    figure.legend(named.values(), named.keys(), loc="outside lower center", ncols=4)
    return figure


def _draw_methods(contents: Contents, axes: Any, task: str, metric: str, axis: str) -> None:
    for method, number in zip(contents.methods, colour_numbers(contents.methods), strict=True):
        curve = contents.band(method, task, metric, axis)
        style: dict[str, Any] = {"color": COLOURS[number], "ls": DASHES[number], "lw": 1.6, "label": method.name}
        if curve is None:
            continue
        shade: dict[str, Any] = {"color": COLOURS[number], "alpha": 0.18, "lw": 0}
        axes[0].plot(curve.x, curve.mean, **style)
        axes[0].fill_between(curve.x, curve.mean - curve.deviation, curve.mean + curve.deviation, **shade)
        axes[1].plot(curve.x, curve.iqm, **style)
        axes[1].fill_between(curve.x, curve.low, curve.high, **shade)


def _mark_chance(grid: Any, contents: Contents, tasks: Sequence[str]) -> None:
    """Mark ln M, the loss of a discriminator that guesses."""
    for column, task in enumerate(tasks):
        sizes = {
            run.config.num_policies for run in contents.runs if run.task == task and "adversary/loss" in run.columns
        }
        for size in sizes:
            for axes in grid[:, column]:
                axes.axhline(math.log(size), color="0.4", lw=0.8, ls=":", label=f"ln {size}, a blind guess")


def _first_of_each(contents: Contents) -> list[Run]:
    """The run with the lowest seed of each task and method."""
    groups = [method.on(task) for task in contents.tasks for method in contents.methods]
    return [min(group, key=lambda run: run.config.seed) for group in groups if group]


def _kl_maps(runs: list[Run]) -> Figure:
    """A row per run: its KL map at the start, halfway and at the end, each policy's nearest circled."""
    figure = Figure(figsize=(2.2 * MAPS_PER_RUN + 1.6, 2.3 * len(runs) + 0.4))
    grid = figure.subplots(len(runs), MAPS_PER_RUN, squeeze=False)
    figure.subplots_adjust(left=0.1, right=0.82, top=1 - 0.35 / figure.get_figheight(), bottom=0.02, hspace=0.22)
    values = np.concatenate([np.ravel(line["kl"]) for run in runs for line in chosen_maps(run, MAPS_PER_RUN)])
    positive = values[np.isfinite(values) & (values > 0)]
    norm = LogNorm(*((positive.min(), positive.max()) if len(positive) else (0.1, 1)))
    image = None
    for row, run in zip(grid, runs, strict=True):
        for axes in row:
            axes.set_axis_off()
        for axes, line in zip(row, chosen_maps(run, MAPS_PER_RUN), strict=False):
            image = _draw_map(axes, line, norm)
        row[0].set(ylabel=run.name, yticks=range(run.config.num_policies))
    if image is not None:
        figure.colorbar(image, cax=figure.add_axes((0.86, 0.3, 0.02, 0.4)), label="KL from row to column")
    return figure


def _draw_map(axes: Any, line: dict[str, Any], norm: LogNorm) -> Any:
    """Draw one matrix. Only the leftmost has row numbers, because many labels are slow to lay out."""
    matrix = np.array(line["kl"], dtype=np.float64)
    axes.set_axis_on()
    axes.grid(visible=False)
    others = np.where(np.eye(len(matrix), dtype=bool), np.inf, matrix)
    image = axes.imshow(np.where(matrix > 0, matrix, np.nan), cmap="viridis", norm=norm)
    axes.plot(others.argmin(axis=1), range(len(matrix)), "o", ms=9, mfc="none", mec="white")
    axes.set(title=f"{line['env_steps']:,} steps", xticks=[], yticks=[])
    return image


def _policies(runs: list[Run]) -> Figure:
    """Returns of all policies of each run, the leader's drawn on top."""
    columns = min(4, len(runs))
    figure = Figure(figsize=(max(4.2, 3 * columns), 2.4 * -(-len(runs) // columns) + 0.4), layout="constrained")
    panels = figure.subplots(-(-len(runs) // columns), columns, squeeze=False).ravel()
    for axes in panels[len(runs) :]:
        axes.set_axis_off()
    for axes, run in zip(panels, runs, strict=False):
        followers, leader = policy_metrics(run)
        for name in followers:
            axes.plot(thin(run, "env_steps"), thin(run, name), color="#56B4E9", lw=0.9)
        axes.plot(thin(run, "env_steps"), thin(run, leader), color=COLOURS[0], lw=2)
        axes.set_title(run.name)
        axes.xaxis.set_major_formatter(EngFormatter())
    panels[0].set(xlabel="environment steps", ylabel="return")
    return figure


def _throughput(runs: list[Run]) -> Figure:
    """Seconds of an iteration by part, a bar per run."""
    figure = Figure(figsize=(6.4, 0.4 * len(runs) + 1.4), layout="constrained")
    axes = figure.subplots()
    found = [throughput(run)["parts"] for run in runs]
    left = np.zeros(len(runs))
    for number, part in enumerate(dict.fromkeys(part for parts in found for part in parts)):
        width = np.array([parts.get(part, 0.0) for parts in found])
        axes.barh([run.name for run in runs], width, left=left, color=COLOURS[number % len(COLOURS)], label=part)
        left += width
    axes.invert_yaxis()
    axes.set_xlabel("seconds of an iteration")
    figure.legend(loc="outside lower center", ncols=5)
    return figure
