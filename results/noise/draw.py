"""Draw sigma, holding and successes of the runs here into docs/images/noise.png."""

import csv
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

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


def main() -> None:
    curves: dict[str, list[dict[str, str]]] = {}
    for file, name in (("published.csv", "method"), ("curves.csv", "run")):
        with (HERE / file).open(newline="") as lines:
            for row in csv.DictReader(lines):
                curves.setdefault(row[name], []).append(row)
    figure, axes = plt.subplots(1, 3, figsize=(12, 4.4))
    for axis, (metric, title) in zip(axes, PANELS.items(), strict=True):
        for run, (label, colour) in RUNS.items():
            rows = [row for row in curves[run] if row[metric]]
            axis.plot(
                [int(r["env_steps"]) / 1e6 for r in rows], [float(r[metric]) for r in rows], color=colour, label=label
            )
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("million environment steps")
        axis.spines[["top", "right"]].set_visible(False)
    axes[2].set_yscale("symlog", linthresh=0.1)
    axes[2].set_ylim(0)
    figure.tight_layout(rect=(0, 0.2, 1, 1))
    figure.legend(*axes[0].get_legend_handles_labels(), loc="lower center", ncol=3, frameon=False, fontsize=9)
    figure.savefig(HERE.parents[1] / "docs" / "images" / "noise.png", dpi=120)


if __name__ == "__main__":
    main()
