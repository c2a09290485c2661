"""Draw the runs here: sigma, holding and successes of all into docs/images/noise.png, and what noise does to a hand that
holds something, beside the successes of some and of the runs in ../evidence, into docs/images/grasping.png."""

import csv
import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

HERE = Path(__file__).parent
RUNS = {  # of curves.csv and published.csv: what they are called in the picture, colour
    "sapg_cpo_steps": ("SAPG, as published", "#a463f2"),
    "cpo": ("CPO, as published", "#4269d0"),
    "ppo_x2": ("PPO, as published", "#9498a0"),
    "rg_ppo_s0.4": ("PPO, σ held at 0.4", "#efb118"),
    "rg_ppo_grip_free": ("PPO, half of the episodes begin gripped", "#6cc5b0"),
    "long_ppo_m16_seed1": ("PPO, both, seed 1", "#ffb5a8"),
    "long_ppo_m16_seed2": ("PPO, both, seed 2", "#ffd9d2"),
    "fingers_seed1": ("PPO, both, fingers alone held, seed 1", "#ff725c"),
    "fingers_seed2": ("PPO, both, fingers alone held, seed 2", "#c2371f"),
}
PANELS = {
    "sigma/policy_0": "σ of the leader",
    "env/held": "share of steps with the object held",
    "successes/leader": "objects carried to their goal, per episode",
}


TOLD = {  # of these runs: what is written beside the curve, and where
    "sapg_cpo_steps": ("SAPG as published,\nfour seeds", (185, 12.9)),
    "sapg-s101": ("", (0, 0)),
    "sapg-s102": ("", (0, 0)),
    "sapg-s103": ("", (0, 0)),
    "ppo_x2": ("PPO as published,\ntwo seeds", (408, 0)),
    "ppo-s101": ("", (0, 0)),
    "fingers_seed1": ("PPO with quiet fingers and\nstarts in a grasp, two seeds", (15, 2.9)),
    "fingers_seed2": ("", (0, 0)),
}
METHODS = {"sapg": "#a463f2", "ppo": "#9498a0"}
"""Colours of runs in ../evidence."""
SHAKEN = {  # of holding.jsonl: how fingers are bent, where noise is; colour, what is written and where
    ("at the end of their range", "fingers"): ("#4269d0", "on the fingers, bent as far as they go", (0.33, 0.8)),
    ("closed", "fingers"): ("#97bbf5", "on the fingers, closed around the object", (0.2, 0.42)),
    ("at the end of their range", "arm"): ("#c2371f", "on the arm, fingers bent as far as they go", (0.36, 0.255)),
    ("closed", "arm"): ("#ff8a72", "on the arm, fingers closed", (0.01, 0.03)),
}


def main() -> None:
    curves: dict[str, list[dict[str, str]]] = {}
    for file, name in (("published.csv", "method"), ("curves.csv", "run")):
        with (HERE / file).open(newline="") as lines:
            for row in csv.DictReader(lines):
                curves.setdefault(row[name], []).append(row)
    for folder in (HERE.parent / "evidence").glob("AllegroKukaRegrasping-*"):
        with (folder / "metrics.csv").open(newline="") as lines:
            curves[folder.name.removeprefix("AllegroKukaRegrasping-")] = [*csv.DictReader(lines)]

    def curve(run: str, metric: str) -> tuple[list[float], list[float]]:
        rows = [row for row in curves[run] if row[metric]]
        return [float(row["env_steps"]) / 1e6 for row in rows], [float(row[metric]) for row in rows]

    figure, axes = plt.subplots(1, 3, figsize=(12, 4.4))
    for axis, (metric, title) in zip(axes, PANELS.items(), strict=True):
        for run, (label, colour) in RUNS.items():
            axis.plot(*curve(run, metric), color=colour, label=label)
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("million environment steps")
    axes[2].set_yscale("symlog", linthresh=0.1)
    axes[2].set_ylim(0)
    figure.tight_layout(rect=(0, 0.2, 1, 1))
    figure.legend(*axes[0].get_legend_handles_labels(), loc="lower center", ncol=3, frameon=False, fontsize=9)
    save(figure, "noise")

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4))
    held = [json.loads(line) for line in (HERE / "holding.jsonl").read_text().splitlines()]
    for kind, (colour, label, place) in SHAKEN.items():
        rows = [row for row in held if (row["fingers"], row["noise_on"]) == kind]
        sigmas, shares = [row["sigma"] for row in rows], [row["survive"] / row["grasps"] for row in rows]
        left.plot(sigmas, shares, color=colour, marker="o", ms=4)
        left.annotate(label, place, color=colour, fontsize=9)
    left.set_title("Noise makes a hand drop what it holds", fontsize=11)
    left.set_xlabel("σ of the noise")
    left.set_ylabel("grasps that last two seconds")
    left.yaxis.set_major_formatter(PercentFormatter(1))
    left.set_ylim(0, 1)
    for run, (label, place) in TOLD.items():
        colour = RUNS[run][1] if run in RUNS else METHODS[run.partition("-")[0]]
        right.plot(*curve(run, "successes/leader"), color=colour)
        right.annotate(label, place, color=colour, fontsize=9)
    right.set_title("Quiet fingers carry objects sooner", fontsize=11)
    right.set_xlabel("million environment steps")
    right.set_ylabel("objects carried per episode, in training")
    right.set_xlim(0, 560)
    figure.tight_layout()
    save(figure, "grasping")


def save(figure: Figure, name: str) -> None:
    for axis in figure.axes:
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(HERE.parents[1] / "docs" / "images" / f"{name}.png", dpi=120)


if __name__ == "__main__":
    main()
