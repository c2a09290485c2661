"""Draw docs/images/ensemble_study.png from results/ensemble, and print the figures of every AllegroHand run.

python docs/draw_ensemble.py
"""

import csv
import math
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results" / "ensemble"
AT = 231
"""The last iteration, 45.4 M steps, that the CSV files of all complete AllegroHand runs hold."""
Run = list[dict[str, str]]
Line = tuple[str, str, str, str]
"""File, method, label and colour."""
STEPS: list[Line] = [
    ("AllegroHand_100M", "ppo", "PPO, 10 optimizer steps", "#D7B98E"),
    ("AllegroHand_100M", "ppo_small", "PPO, 20", "#E69F00"),
    ("AllegroHand_settings", "ppo_x4", "PPO, 40", "#D55E00"),
    ("AllegroHand_borrowing", "ppo_x4", "PPO, 40", "#D55E00"),
    ("AllegroHand_100M", "cpo", "CPO, the paper's settings, 20", "#999999"),
    ("AllegroHand_settings", "noadv_klown", "... no adversary, KL of own rows, 20", "#56B4E9"),
    ("AllegroHand_settings", "noadv_klown_policy_norm", "... pull normalised, scope policy, 20", "#0072B2"),
    ("AllegroHand_borrowing", "cpo_norm_x2", "... pull normalised, centred, 40", "#003B5C"),
]
BORROWING: list[Line] = [
    ("AllegroHand_borrowing", "cpo_norm_x2", "one follower's rows", "#003B5C"),
    ("AllegroHand_borrowing", "flock_vtrace_x2", "all followers', V-trace", "#009E73"),
    ("AllegroHand_borrowing", "flock_x2", "all followers', one-step", "#CC79A7"),
    ("AllegroHand_borrowing", "flock_free_x2", "all followers', one-step, no pull", "#999999"),
]


def read(name: str) -> dict[tuple[str, str], Run]:
    """The runs of a file, by method and seed."""
    runs = defaultdict(list)
    with (RESULTS / f"{name}.csv").open() as file:
        for row in csv.DictReader(file):
            runs[row["method"], row["seed"]].append(row)
    return runs


def steps_to_one_success(run: Run) -> float:
    """In millions, between two rows by their logarithms, as successes grow exponentially; NaN if not reached."""
    points = [(float(row["env_steps"]) / 1e6, float(row["successes/leader"])) for row in run]
    for (before, low), (after, high) in pairwise(points):
        if low < 1 <= high:
            return before + (after - before) * math.log(1 / low) / math.log(high / low)
    return math.nan


def now(row: dict[str, str]) -> str:
    """Successes in an episode's 599 steps at the rate of the last ten iterations, by their reward of 250 each."""
    return f", rate {float(row['success_reward']) / 250 * 599:.1f}" if "success_reward" in row else ""


def print_figures(name: str) -> None:
    for (method, seed), run in read(name).items():
        reached = [row for row in run if int(row["iteration"]) == AT]
        at = f"{float(reached[0]['successes/leader']):.2f}{now(reached[0])}" if reached else "cut"
        print(
            f"{name:22s} {method:24s} seed {seed}: {at} at 45.4 M; 1 success at {steps_to_one_success(run):.1f} M steps"
        )


def draw(axis: Axes, lines: list[Line], title: str) -> None:
    for name, method, label, colour in lines:
        for (run_method, seed), run in read(name).items():
            rows = [row for row in run if int(row["iteration"]) <= AT]
            if run_method == method and int(rows[-1]["iteration"]) == AT:
                steps = [float(row["env_steps"]) / 1e6 for row in rows]
                values = [float(row["successes/leader"]) for row in rows]
                first = label not in axis.get_legend_handles_labels()[1]
                style = "-" if seed == "1" else "--"
                axis.plot(steps, values, style, color=colour, linewidth=2, label=label if first else None)
    axis.set_title(title, loc="left", fontsize=11)
    axis.set_xlabel("million environment steps")
    axis.set_xlim(15, 46)
    axis.set_ylim(0, 3.7)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, fontsize=9, loc="upper left")


def main() -> None:
    for name in ("AllegroHand_100M", "AllegroHand_variants", "AllegroHand_settings", "AllegroHand_borrowing"):
        print_figures(name)
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained", sharey=True)
    draw(axes[0], STEPS, "AllegroHand: settings and optimizer steps")
    draw(axes[1], BORROWING, "CPO, 40 optimizer steps: whose rows the leader borrows")
    axes[0].set_ylabel("the leader's successes per episode")
    note = (
        "solid: seed 1, dashed: seed 2",
        "all rise at 20 and 35 M, where episodes",
        "that reach the time limit end together",
    )
    axes[1].text(0.02, 0.62, "\n".join(note), transform=axes[1].transAxes, fontsize=9, color="#666666")
    figure.savefig(ROOT / "docs" / "images" / "ensemble_study.png", dpi=120)


if __name__ == "__main__":
    main()
