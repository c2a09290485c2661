"""Draw docs/images/regrasping.png: each change of CPO alone on AllegroKukaRegrasping, and the arms of the bar.

python docs/draw_changes.py
"""

import matplotlib.pyplot as plt
from draw_ensemble import ROOT, read
from matplotlib.axes import Axes

CHANGES, BAR = "../changes/AllegroKukaRegrasping/curves", "AllegroKukaRegrasping_flock"
ALONE = {
    "steps_x4": ("four times the optimizer steps", "#D55E00"),
    "steps_x2": ("twice", "#E69F00"),
    "pull_normalised": ("pull normalised", "#0072B2"),
    "kl_own": ("KL rule on own rows", "#56B4E9"),
    "part_of_each": ("a part of every follower's rows", "#009E73"),
    "cpo": ("CPO as published", "black"),
    "centred": ("centred advantages", "#CC79A7"),
    "all": ("all rows of all followers", "#999999"),
    "adversary_10": ("adversary at a tenth", "#8C6D31"),
    "adversary_100": ("... at a hundredth", "#C9A227"),
    "flock_0.9": ("flock held at ESS 0.9", "#6A3D9A"),
}
ARMS = {
    "flock_free_gae_x4": ("flock, 64 optimizer steps", "#D55E00"),
    "flock_free_gae_x4_long": ("... its seed 1 again, to 300 M", "#F4A582"),
    "flock_free_gae_now": ("flock, 32", "#E69F00"),
    "ppo_x8": ("PPO, 64", "#0072B2"),
    "cpo_now": ("CPO as published, 16", "black"),
}
THRESHOLD = 150


def draw(axis: Axes, name: str, arms: dict[str, tuple[str, str]], title: str) -> None:
    """A line per run; a run ends where it crosses the threshold, or where it was told to."""
    runs = read(name)
    for arm, (label, colour) in arms.items():
        axis.plot([], [], color=colour, label=label)
        for run in [run for (method, _), run in runs.items() if method == arm]:
            steps = [float(row["env_steps"]) / 1e6 for row in run]
            axis.plot(steps, [float(row["return/leader"]) for row in run], color=colour, linewidth=1.6)
    axis.axhline(THRESHOLD, color="#bbbbbb", linewidth=1, zorder=0)
    axis.set_title(title, loc="left", fontsize=11)
    axis.set_xlabel("million environment steps")
    axis.set_xlim(0, 76)
    axis.set_ylim(0, 200)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(framealpha=1, edgecolor="white", fontsize=9, loc="upper left")


def main() -> None:
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained", sharey=True)
    draw(axes[0], CHANGES, ALONE, "AllegroKukaRegrasping: each change of CPO alone, seed 0")
    draw(axes[1], BAR, ARMS, "until a return of 150, seeds 1 to 3 or 5")
    axes[0].set_ylabel("the leader's return")
    figure.savefig(ROOT / "docs" / "images" / "regrasping.png", dpi=120)


if __name__ == "__main__":
    main()
