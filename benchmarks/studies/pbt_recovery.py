"""Does a population find its way out of a learning rate that is thirty times too small, where PPO does not?

CartpoleSwingup with a fixed learning rate: the KL rule, which would repair it, is off. The same environment steps in
all for every method, so that a member of the population has a sixth of them. The learning rate is the only number that
mutates, in steps large enough for the few takeovers that a run of a minute has time for. About 15 minutes of 2 cores.
Writes `docs/images/pbt_recovery.png` too.
"""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from command import markdown

from echelon.config import PbtConfig, TrainConfig
from echelon.presets import preset
from echelon.report.statistics import interquartile_mean
from echelon.runs.folder import RunFolder
from echelon.runs.genealogy import read_genealogy
from studies.running import ROOT, Row, Study, machine, read

GOOD, BAD = 3e-3, 1e-4
MEMBERS, ENVS = 6, 252
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
COLUMNS = ["return/leader", "upright_late/leader", "lr"]
COLUMNS += [f"{name}/policy_{i}" for name in ("pbt/learning_rate", "objective") for i in range(MEMBERS)]
COLOURS = {"ppo-good": "#009E73", "ppo-bad": "#D55E00", "pbt-bad": "#0072B2"}
LABELS = {
    "ppo-good": f"PPO, rate {GOOD:g}",
    "ppo-bad": f"PPO, rate {BAD:g}",
    "pbt-bad": f"PBT, rates from {BAD:g}",
}


def config(algo: Any, rate: float) -> TrainConfig:
    base = replace(preset("CartpoleSwingup"), algo=algo, num_envs=ENVS, pbt=PBT)
    return replace(base, update=replace(base.update, learning_rate=rate, rate_schedule="fixed"))


def takeovers(run: RunFolder, folder: Path) -> Row:
    """How often members were replaced; the genealogy itself goes beside the results."""
    if run.config.algo != "pbt":
        return {}
    shutil.copy(run.population / "genealogy.jsonl", folder / f"genealogy-s{run.config.seed}.jsonl")
    lines = [line for line in read_genealogy(run) if "donor" in line]
    return {"takeovers": len(lines), "copies": sum(line["copied"] for line in lines)}


def write(folder: Path) -> None:
    """Every run in one table, and what they say together."""
    rows = sorted(read(folder / "runs.csv"), key=lambda row: (row["method"], int(row["seed"])))

    def middle(method: str, name: str) -> str:
        return f"{float(interquartile_mean([float(row[name]) for row in rows if row['method'] == method])):.1f}"

    known = [method for method in METHODS if any(row["method"] == method for row in rows)]
    finals = [(LABELS[method], middle(method, "return"), middle(method, "final_return/leader")) for method in known]
    names = ("method", "seed", "return", "upright_late", "final_return/leader", "final_lr", "takeovers", "copies")
    headings = ("method", "seed", "return", "upright late", "last quarter", "rate", "takeovers", "copies")
    (folder / "README.md").write_text(f"""\
# PBT out of a learning rate thirty times too small

`python benchmarks/study.py pbt_recovery`, CartpoleSwingup, {ENVS} environments, {machine("cpu")}.
`return`: the deterministic leader over 64 new episodes; of a population, the member that trained best.
`last quarter`: mean of `return/leader` over the last quarter of training. `rate`: the leader's, likewise.

{markdown(("method", "IQM of returns", "IQM of the last quarter"), finals)}

{markdown(headings, ([row.get(name) or "" for name in names] for row in rows))}
""")
    draw(folder, ROOT / "docs" / "images" / "pbt_recovery.png")


def draw(folder: Path, image: Path) -> None:
    """Returns of every run; the rates of one population's members; the leading member's rate in all of them."""
    from studies.drawing import draw_seeds, panels, save

    rows = read(folder / "curves.csv")
    own = {method: [row for row in rows if row["method"] == method] for method in METHODS}
    figure, axes = panels(3)
    for method, colour in COLOURS.items():
        draw_seeds(axes[0], own[method], "env_steps", "return/leader", colour, LABELS[method])
    first = [row for row in own["pbt-bad"] if row["seed"] == "0"]
    for i in range(MEMBERS):
        draw_seeds(axes[1], first, "env_steps", f"pbt/learning_rate/policy_{i}", f"C{i}", f"member {i}")
    draw_seeds(axes[2], own["pbt-bad"], "env_steps", "lr", COLOURS["pbt-bad"], "")
    axes[0].set(title="return of the leader, every seed", ylabel="return", ylim=(None, 230))
    axes[1].set(title="rates of the members, seed 0", ylabel="learning rate", yscale="log")
    axes[2].set(title="rate of the best member, every seed", ylabel="learning rate", yscale="log")
    for axis in axes[1:]:
        axis.axhline(GOOD, color=COLOURS["ppo-good"], linestyle="--")
        axis.axhline(BAD, color=COLOURS["ppo-bad"], linestyle="--")
    for axis in axes:
        axis.set_xlabel("environment steps, all members")
    axes[0].legend(frameon=False, fontsize=8, loc="upper left")
    axes[1].legend(frameon=False, fontsize=7, ncols=2)
    save(figure, image)


METHODS = {"ppo-good": config("ppo", GOOD), "ppo-bad": config("ppo", BAD), "pbt-bad": config("pbt", BAD)}
STUDIES = {"pbt_recovery": Study(METHODS, COLUMNS, write, figures=takeovers, workers=2)}
