"""Do the quick tasks learn, how fast, and does memory help where velocities are hidden?

    python benchmarks/quick_tasks.py            # about 20 minutes on 2 cores; goes on where it stopped

One run at a time with all cores, because wall time is part of the claim. Writes `results/quick_tasks/`.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import study
from matplotlib import pyplot as plt

from echelon.config import ModelConfig, TrainConfig
from echelon.presets import preset
from echelon.tasks.cartpole import CartpoleConfig

COLUMNS = ["return/leader", "upright_late/leader", "distance/leader", "fps/total"]


def hidden_velocities(lstm: int) -> TrainConfig:
    """The cartpole without velocities, seen by an MLP or an LSTM of otherwise the same settings."""
    base = replace(preset("CartpoleSwingup"), algo="ppo", env=CartpoleConfig(velocities=False))
    # At the preset's larger KL threshold two of three LSTMs ended upright and centred, and curves swung.
    update = replace(base.update, kl_threshold=0.008)
    return replace(base, model=ModelConfig(hidden=(64, 64), lstm=lstm), update=update)


METHODS = {
    "cartpole-ppo": replace(preset("CartpoleSwingup"), algo="ppo"),
    "cartpole-cpo": preset("CartpoleSwingup"),
}
HIDDEN = {
    "cartpole-hidden-mlp": hidden_velocities(0),
    "cartpole-hidden-lstm": hidden_velocities(64),
}
HOPPER = {"hopper-ppo": replace(preset("Hopper"), algo="ppo"), "hopper-cpo": preset("Hopper")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--hidden-seeds", type=int, default=3)
    parser.add_argument("--hopper-seeds", type=int, default=2)
    args = parser.parse_args()
    cells = study.grid(METHODS, range(args.seeds)) + study.grid(HOPPER, range(args.hopper_seeds))
    cells += study.grid(HIDDEN, range(args.hidden_seeds))
    folder = study.run("quick_tasks", cells, study.Summary(COLUMNS), args.workers)
    write_page(folder)
    draw(folder)


def write_page(folder: Path) -> None:
    """Every run in one table."""
    lines = [
        "# Quick tasks",
        "",
        f"`python benchmarks/quick_tasks.py` on {study.machine()}, one run at a time, CPU.",
        "Figures of the deterministic leader over 64 episodes.",
        "`upright late`: share of the second half of the episode with the pole upright and the cart centred.",
        "",
        "| run | seed | steps | seconds | return | ended early | upright late | distance [m] |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in sorted(study.read(folder / "runs.csv"), key=lambda row: (row["method"], int(row["seed"]))):
        names = ("method", "seed", "env_steps", "seconds", "return", "ended_early", "upright_late", "distance")
        lines.append("| " + " | ".join(row.get(name) or "" for name in names) + " |")
    (folder / "README.md").write_text("\n".join(lines) + "\n")


def draw(folder: Path) -> None:
    """Learning curves against wall time."""
    panels = {
        "CartpoleSwingup": ("upright_late/leader", ["cartpole-ppo", "cartpole-cpo"]),
        "CartpoleSwingup, velocities hidden": (
            "upright_late/leader",
            ["cartpole-hidden-mlp", "cartpole-hidden-lstm"],
        ),
        "Hopper": ("return/leader", ["hopper-ppo", "hopper-cpo"]),
    }
    rows = study.read(folder / "curves.csv")
    figure, axes = plt.subplots(1, len(panels), figsize=(12, 3.4), layout="constrained")
    for axis, (title, (column, methods)) in zip(axes, panels.items(), strict=True):
        for color, method in zip(("#0072B2", "#D55E00"), methods, strict=True):
            seeds = sorted({row["seed"] for row in rows if row["method"] == method})
            for seed in seeds:
                points = [row for row in rows if row["method"] == method and row["seed"] == seed and row[column]]
                label = method.rsplit("-", 1)[-1].upper() if seed == seeds[0] else None
                seconds = [float(point["wall_s"]) for point in points]
                axis.plot(seconds, [float(point[column]) for point in points], color=color, alpha=0.8, label=label)
        axis.set(title=title, xlabel="seconds of training, 2 CPU cores", ylabel=column.split("/")[0].replace("_", " "))
        axis.grid(alpha=0.3)
        axis.legend(frameon=False)
    figure.savefig(folder / "curves.png", dpi=110)


if __name__ == "__main__":
    main()
