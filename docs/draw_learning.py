"""Draw what each task's leader learned, from results/learning.

    python docs/draw_learning.py

`docs/images/learning.png` is against the wall clock, `docs/images/beside_paper.png` against environment steps, beside
points that were read off the paper's curves (results/paper).
"""

import csv
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results" / "learning"
PAPER = ROOT / "results" / "paper" / "points.csv"
COLOURS = {"cpo": "#D55E00", "ppo": "#666666"}
"""Colour of the paper's points; ours are blue."""
OTHERS = {
    "ShadowHand": {"ShadowHand_adversary": "ours, with adversary"},
    "Humanoid": {"Humanoid_hard_stops": "ours, hard stops"},
    "FrankaCubeStack": {
        "FrankaCubeStack_kl_own": "ours, CPO, KL of own rows",
        "FrankaCubeStack_ppo_mlp": "ours, PPO without memory",
    },
}
"""Folders of further runs beside a task's own."""


@dataclass(frozen=True)
class Panel:
    """One task's figure that matters, and what it should reach."""

    task: str
    metric: str
    label: str
    aim: float | None


PANELS = (
    Panel("AllegroHand", "successes/leader", "successes per episode", 1.5),
    Panel("ShadowHand", "successes/leader", "successes per episode", None),
    Panel("Anymal", "env/tracking_error", "velocity error, m/s", 0.3),
    Panel("Humanoid", "env/forward_velocity", "forward velocity, m/s", 2.0),
    Panel("AllegroKukaReorientation", "env/lifted", "share of objects lifted", 0.5),
    Panel("AllegroKukaRegrasping", "successes/leader", "successes per episode", None),
    Panel("AllegroKukaThrow", "env/lifted", "share of objects lifted", None),
    Panel("AllegroKukaTwoArmsReorientation", "env/lifted", "share of objects lifted", None),
    Panel("FrankaCubeStack", "lifted/leader", "share of episodes with a lift", None),
)
COLUMNS = 3


def rows_of(task: str) -> list[dict[str, str]]:
    with (RESULTS / task / "metrics.csv").open() as file:
        return list(csv.DictReader(file))


def grid(count: int) -> tuple[Figure, list[Axes]]:
    """A figure with this number of axes, the rest hidden."""
    rows = -(-count // COLUMNS)
    figure, axes = plt.subplots(rows, COLUMNS, figsize=(4 * COLUMNS, 2.9 * rows), layout="constrained")
    for axis in axes.flat[count:]:
        axis.set_visible(False)
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
    return figure, list(axes.flat[:count])


def against_the_clock() -> Figure:
    figure, axes = grid(len(PANELS))
    for axis, panel in zip(axes, PANELS, strict=True):
        rows = rows_of(panel.task)
        values = [float(row[panel.metric]) for row in rows]
        axis.plot([float(row["wall_s"]) / 60 for row in rows], values, color="#0072B2", linewidth=2)
        if panel.aim is not None:
            axis.axhline(panel.aim, color="#999999", linestyle=":", linewidth=1.5)
        axis.set_title(f"{panel.task}, {float(rows[-1]['env_steps']) / 1e6:.0f} M steps", loc="left", fontsize=11)
        axis.set_xlabel("minutes")
        axis.set_ylabel(panel.label)
        axis.set_xlim(left=0)
        axis.set_ylim(bottom=min(0, min(values)))
    return figure


def beside_the_paper() -> Figure:
    with PAPER.open() as file:
        points = list(csv.DictReader(file))
    tasks = list(dict.fromkeys(point["task"] for point in points))
    figure, axes = grid(len(tasks))
    for axis, task in zip(axes, tasks, strict=True):
        metric = next(point["metric"] for point in points if point["task"] == task)
        rows = rows_of(task)
        steps = [float(row["env_steps"]) / 1e9 for row in rows]
        axis.plot(
            steps, [float(row[f"{metric}/leader"]) for row in rows], color="#0072B2", linewidth=2, label="ours, CPO"
        )
        for style, (other, name) in zip(cycle(("--", ":")), OTHERS.get(task, {}).items(), strict=False):
            curve = rows_of(other)
            places = [float(row["env_steps"]) / 1e9 for row in curve]
            axis.plot(places, [float(row[f"{metric}/leader"]) for row in curve], style, color="#0072B2", label=name)
        for algo, colour in COLOURS.items():
            theirs = [point for point in points if (point["task"], point["algo"]) == (task, algo)]
            if theirs:
                places = [float(point["env_steps_G"]) for point in theirs]
                values = [float(point["value"]) for point in theirs]
                axis.plot(places, values, "o:", color=colour, markerfacecolor="none", label=f"paper, {algo.upper()}")
        axis.set_title(task, loc="left", fontsize=11)
        axis.set_xlabel("10⁹ environment steps")
        axis.set_ylabel(f"{metric} per episode")
        axis.set_xlim(left=0)
        low, high = axis.get_ylim()
        axis.set_ylim(low, high + 0.09 * len(axis.lines) * (high - low))  # room for the legend
        axis.legend(frameon=False, fontsize=8, loc="upper left")
    return figure


def main() -> None:
    for name, figure in (("learning", against_the_clock()), ("beside_paper", beside_the_paper())):
        figure.savefig(ROOT / "docs" / "images" / f"{name}.png", dpi=120)


if __name__ == "__main__":
    main()
