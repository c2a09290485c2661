"""Do the quick tasks learn, how fast, and does memory help where velocities are hidden?

About 20 minutes on 2 cores, one run at a time with all of them, because wall time is part of the claim.
"""

from dataclasses import replace
from pathlib import Path

from command import markdown

from echelon.config import ModelConfig, TrainConfig
from echelon.presets import preset
from echelon.tasks.cartpole import CartpoleConfig
from studies.running import Study, machine, read

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
    "hopper-ppo": replace(preset("Hopper"), algo="ppo"),
    "hopper-cpo": preset("Hopper"),
    "cartpole-hidden-mlp": hidden_velocities(0),
    "cartpole-hidden-lstm": hidden_velocities(64),
}
SEEDS = {"hopper-ppo": 2, "hopper-cpo": 2, "cartpole-hidden-mlp": 3, "cartpole-hidden-lstm": 3}
PANELS = {
    "CartpoleSwingup": ("upright_late/leader", ["cartpole-ppo", "cartpole-cpo"]),
    "CartpoleSwingup, velocities hidden": ("upright_late/leader", ["cartpole-hidden-mlp", "cartpole-hidden-lstm"]),
    "Hopper": ("return/leader", ["hopper-ppo", "hopper-cpo"]),
}


def write(folder: Path) -> None:
    """Every run in one table, and learning curves against wall time."""
    from studies.drawing import draw_seeds, panels, save

    names = ("method", "seed", "env_steps", "seconds", "return", "ended_early", "upright_late", "distance")
    rows = sorted(read(folder / "runs.csv"), key=lambda row: (row["method"], int(row["seed"])))
    headings = ("run", "seed", "steps", "seconds", "return", "ended early", "upright late", "distance [m]")
    (folder / "README.md").write_text(f"""\
# Quick tasks

`python benchmarks/study.py quick_tasks` on {machine("cpu")}, one run at a time, CPU.
Figures of the deterministic leader over 64 episodes.
`upright late`: share of the second half of the episode with the pole upright and the cart centred.

{markdown(headings, ([row.get(name) or "" for name in names] for row in rows))}
""")
    figure, axes = panels(len(PANELS))
    curves = read(folder / "curves.csv")
    for axis, (title, (column, methods)) in zip(axes, PANELS.items(), strict=True):
        for colour, method in zip(("#0072B2", "#D55E00"), methods, strict=True):
            own = [row for row in curves if row["method"] == method]
            draw_seeds(axis, own, "wall_s", column, colour, method.rsplit("-", 1)[-1].upper())
        axis.set(title=title, xlabel="seconds of training, 2 CPU cores", ylabel=column.split("/")[0].replace("_", " "))
        axis.legend(frameon=False)
    save(figure, folder / "curves.png")


STUDIES = {"quick_tasks": Study(METHODS, COLUMNS, write, seeds=SEEDS)}
