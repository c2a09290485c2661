"""Draw docs/images/regrasping.png: each change of CPO alone on AllegroKukaRegrasping, and the arms of the bar.

python docs/draw_changes.py
"""

import csv
from collections import defaultdict
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

ROOT = Path(__file__).parent.parent
CHANGES = ROOT / "results" / "changes" / "AllegroKukaRegrasping" / "curves.csv"
BAR = ROOT / "results" / "ensemble" / "AllegroKukaRegrasping_flock.csv"
ALONE = {
    "steps_x4": ("four times the optimizer steps", "#D55E00"),
    "steps_x2": ("twice", "#E69F00"),
    "pull_normalised": ("pull normalised", "#0072B2"),
    "kl_own": ("KL rule on own rows", "#56B4E9"),
    "part_of_each": ("a part of every follower's rows", "#009E73"),
    "cpo": ("CPO as published", "black"),
    "centred": ("centred advantages", "#CC79A7"),
    "all": ("all rows of all followers", "#999999"),
}
ARMS = {
    "flock_free_gae_x4": ("flock, 64 optimizer steps", "#D55E00"),
    "flock_free_gae_now": ("flock, 32", "#E69F00"),
    "cpo_now": ("CPO as published, 16", "black"),
}
THRESHOLD = 150


def draw(axis: Axes, path: Path, arms: dict[str, tuple[str, str]], title: str) -> None:
    """A line per run; a run ends where it crosses the threshold, or where it was told to."""
    runs: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    with path.open() as file:
        for row in csv.DictReader(file):
            runs[row["method"], row["seed"]].append((float(row["env_steps"]) / 1e6, float(row["return/leader"])))
    for method, (label, colour) in arms.items():
        for name in [key for key in runs if key[0] == method]:
            axis.plot(*zip(*runs[name], strict=True), color=colour, linewidth=1.6, label=label)
            label = None
    axis.axhline(THRESHOLD, color="#bbbbbb", linewidth=1, zorder=0)
    axis.set_title(title, loc="left", fontsize=11)
    axis.set_xlabel("million environment steps")
    axis.set_xlim(0, 70)
    axis.set_ylim(0, 200)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(framealpha=1, edgecolor="white", fontsize=9, loc="upper left")


def main() -> None:
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained", sharey=True)
    draw(axes[0], CHANGES, ALONE, "AllegroKukaRegrasping: each change of CPO alone, seed 0")
    draw(axes[1], BAR, ARMS, "until a return of 150, seeds 1, 2 and 3")
    axes[0].set_ylabel("the leader's return")
    figure.savefig(ROOT / "docs" / "images" / "regrasping.png", dpi=120)


if __name__ == "__main__":
    main()
