"""Does a population find its way out of a learning rate that is thirty times too small, where PPO does not?

    python benchmarks/pbt_recovery.py            # about 15 minutes of 2 cores; goes on where it stopped

CartpoleSwingup with a fixed learning rate: the KL rule, which would repair it, is off. The same environment steps in
all for every method, so that a member of the population has a sixth of them. The learning rate is the only number that
mutates, in steps large enough for the few takeovers that a run of a minute has time for. Writes
`results/pbt_recovery/` and `docs/images/pbt_recovery.png`.
"""

import argparse
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import study
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from echelon.config import PbtConfig, TrainConfig
from echelon.presets import preset
from echelon.report.statistics import interquartile_mean
from echelon.runs.folder import RunFolder
from echelon.runs.genealogy import read_genealogy

GOOD, BAD = 3e-3, 1e-4
MEMBERS, ENVS = 6, 252
IMAGE = Path(__file__).parent.parent / "docs" / "images" / "pbt_recovery.png"
ITERATION = ENVS // MEMBERS * 16
"""Environment steps of a member in an iteration. An episode is twelve and a half."""
PBT = PbtConfig(
    interval=4 * ITERATION,
    initial_delay=13 * ITERATION,
    wait=13 * ITERATION,
    mutation_probability=1.0,
    mutation_low=1.5,
    mutation_high=4.0,
    mutable=("learning_rate",),
)
COLUMNS = [
    "return/leader",
    "upright_late/leader",
    "lr",
    *(f"pbt/learning_rate/policy_{i}" for i in range(MEMBERS)),
    *(f"objective/policy_{i}" for i in range(MEMBERS)),
]
COLOURS = {"ppo-good": "#009E73", "ppo-bad": "#D55E00", "pbt-bad": "#0072B2"}
LABELS = {
    "ppo-good": f"PPO, rate {GOOD:g}",
    "ppo-bad": f"PPO, rate {BAD:g}",
    "pbt-bad": f"PBT, rates from {BAD:g}",
}


def config(algo: Any, rate: float) -> TrainConfig:
    base = replace(preset("CartpoleSwingup"), algo=algo, num_envs=ENVS, pbt=PBT)
    return replace(base, update=replace(base.update, learning_rate=rate, rate_schedule="fixed"))


METHODS = {"ppo-good": config("ppo", GOOD), "ppo-bad": config("ppo", BAD), "pbt-bad": config("pbt", BAD)}


def takeovers(folder: RunFolder) -> dict[str, Any]:
    """How often members were replaced; the genealogy itself goes beside the results."""
    lines = [line for line in read_genealogy(folder) if "donor" in line]
    if folder.config.algo != "pbt":
        return {}
    shutil.copy(
        folder.population / "genealogy.jsonl", study.RESULTS / "pbt_recovery" / f"genealogy-s{folder.config.seed}.jsonl"
    )
    return {"takeovers": len(lines), "copies": sum(line["copied"] for line in lines)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    cells = study.grid(METHODS, range(args.seeds))
    folder = study.run("pbt_recovery", cells, study.Summary(COLUMNS, takeovers), args.workers)
    write_page(folder)
    draw(folder)


def write_page(folder: Path) -> None:
    """Every run in one table, and what they say together."""
    rows = sorted(study.read(folder / "runs.csv"), key=lambda row: (row["method"], int(row["seed"])))
    lines = [
        "# PBT out of a learning rate thirty times too small",
        "",
        f"`python benchmarks/pbt_recovery.py`, CartpoleSwingup, {ENVS} environments, {study.machine()}.",
        "`return`: the deterministic leader over 64 new episodes; of a population, the member that trained best.",
        "`last quarter`: mean of `return/leader` over the last quarter of training. `rate`: the leader's, likewise.",
        "",
        "| method | IQM of returns | IQM of the last quarter |",
        "|---|---|---|",
    ]
    for method in METHODS:
        own = [row for row in rows if row["method"] == method]
        finals = [
            float(interquartile_mean([float(row[name]) for row in own])) for name in ("return", "final_return/leader")
        ]
        lines.append(f"| {LABELS[method]} | {finals[0]:.1f} | {finals[1]:.1f} |")
    lines += ["", "| method | seed | return | upright late | last quarter | rate | takeovers | copies |"]
    lines += ["|" + "---|" * 8]
    names = ("method", "seed", "return", "upright_late", "final_return/leader", "final_lr", "takeovers", "copies")
    lines += ["| " + " | ".join(row.get(name) or "" for name in names) + " |" for row in rows]
    (folder / "README.md").write_text("\n".join(lines) + "\n")


def draw(folder: Path) -> None:
    """Returns of every run; the rates of one population's members; the leading member's rate in all of them."""
    rows = study.read(folder / "curves.csv")
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.6), layout="constrained")
    for method, colour in COLOURS.items():
        own = [row for row in rows if row["method"] == method]
        lines(axes[0], own, "return/leader", colour, LABELS[method])
    first = [row for row in rows if row["method"] == "pbt-bad" and row["seed"] == "0"]
    for member in range(MEMBERS):
        lines(axes[1], first, f"pbt/learning_rate/policy_{member}", f"C{member}", f"member {member}")
    lines(axes[2], [row for row in rows if row["method"] == "pbt-bad"], "lr", COLOURS["pbt-bad"], "")
    axes[0].set(title="return of the leader, every seed", ylabel="return", ylim=(None, 230))
    axes[1].set(title="rates of the members, seed 0", ylabel="learning rate", yscale="log")
    axes[2].set(title="rate of the best member, every seed", ylabel="learning rate", yscale="log")
    for axis in axes[1:]:
        axis.axhline(GOOD, color=COLOURS["ppo-good"], linestyle="--")
        axis.axhline(BAD, color=COLOURS["ppo-bad"], linestyle="--")
    for axis in axes:
        axis.set_xlabel("environment steps, all members")
        axis.grid(alpha=0.3)
    axes[0].legend(frameon=False, fontsize=8, loc="upper left")
    axes[1].legend(frameon=False, fontsize=7, ncols=2)
    figure.savefig(IMAGE, dpi=110)


def lines(axis: Axes, rows: list[dict[str, str]], column: str, colour: str, label: str) -> None:
    """A line per seed, one of them named."""
    for number, seed in enumerate(sorted({row["seed"] for row in rows})):
        points = [row for row in rows if row["seed"] == seed and row[column]]
        steps, values = ([float(point[name]) for point in points] for name in ("env_steps", column))
        axis.plot(steps, values, color=colour, alpha=0.8, label=None if number else label)


if __name__ == "__main__":
    main()
