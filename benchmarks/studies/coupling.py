"""Does CPO hold the followers near the leader, and the more so the smaller its temperature λ_f?

The paper's second table on other tasks: IS-ratio deviation and effective sample size of SAPG, and of CPO with λ_f 0.5,
0.2, 0.1 and 0.05, and whether the leader is the nearest policy to every follower. Hopper on the CPU, 25 runs;
AllegroHand on a CUDA GPU.
"""

import statistics
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from command import markdown

from echelon.algorithms import complete
from echelon.config import DiagnosticsConfig, TrainConfig
from echelon.diagnostics.divergence import nearest_policy
from echelon.presets import preset
from echelon.presets.variants import VARIANTS
from echelon.runs.distances import read_distances
from echelon.runs.folder import RunFolder
from studies.running import Row, Study, machine, read

COLUMNS = ["return/leader", "is_deviation", "ess", "kl/follower_to_leader", "nearest_is_leader", "lr", "pull/weight"]
MEASUREMENTS = 11
"""The paper averages over eleven iterations; so do we, over the last eleven measurements."""
HOPPER = replace(preset("Hopper"), env_steps=600_000, device="cpu", diagnostics=DiagnosticsConfig(every=2))
ALLEGRO_HAND = replace(
    VARIANTS["lambda_f_0.2"](preset("AllegroHand")),  # the paper's ablation: β 0.001 and no adversarial reward
    num_envs=6144,
    iterations=150,
    device="cuda",
    diagnostics=DiagnosticsConfig(every=5),
)
NOTES = {
    "Hopper": """\
Deviation falls and ESS rises in the paper's order. The leader is nearer than the nearest other follower on
average, but rarely for all five at once: with 3 actions and 85 environments a policy, chance brings some
two followers closer, and the stronger the pull, the more all of them have the leader's last step in common.
[AllegroHand](../coupling_allegro_hand/README.md), with 16 actions, shows it in every seed.""",
    "AllegroHand": """\
Deviation falls, ESS rises and the leader is the nearest policy to every follower, as in the paper.
Times are of 5 to 15 runs sharing the GPU, without captured graphs, and say nothing about speed. Returns are
of the first episodes: 7.4 M steps are a beginning.""",
}


def methods(base: TrainConfig) -> dict[str, TrainConfig]:
    """SAPG and CPO at the paper's four temperatures."""
    temperatures = {f"cpo λ_f={value}": replace(base.pull, temperature=value) for value in (0.5, 0.2, 0.1, 0.05)}
    coupled = {name: replace(base, algo="cpo", pull=pull) for name, pull in temperatures.items()}
    return {"sapg": replace(base, algo="sapg")} | coupled


def nearest(run: RunFolder, folder: Path) -> Row:
    """KL of followers to the leader, and to the nearest other follower, from the mean of the last matrices."""
    kl = torch.tensor([line["kl"] for line in read_distances(run)[-MEASUREMENTS:]]).mean(0)
    others = kl[1:, 1:].clone().fill_diagonal_(float("inf")).min(1).values
    return {
        "followers_nearest_to_leader": int((nearest_policy(kl)[1:] == 0).sum()),
        "kl_to_leader": f"{kl[1:, 0].mean():.4g}",
        "kl_to_nearest_follower": f"{others.mean():.4g}",
    }


def write(name: str, base: TrainConfig, folder: Path) -> None:
    """The paper's table, with the spread over seeds."""
    rows = read(folder / "runs.csv")
    lines = []
    for method in methods(base):
        mine = [row for row in rows if row["method"] == method]
        if not mine:
            continue
        names = ("final_is_deviation", "final_ess", "kl_to_leader", "kl_to_nearest_follower")
        figures = [_spread([float(row[name]) for row in mine]) for name in names]
        seeds = sum(row["followers_nearest_to_leader"] == "5" for row in mine)
        returns = _spread([float(row["final_return/leader"]) for row in mine], ".0f")
        lines.append([method, len(mine), *figures, f"{seeds} of {len(mine)}", returns])
    headings = (
        *("method", "seeds", "IS deviation", "ESS", "KL to leader", "KL to nearest follower", "all nearest", "return"),
    )
    (folder / "README.md").write_text(f"""\
# Coupling on {base.task}

`python benchmarks/study.py {name}` on {machine(base.device)}: {complete(base).num_policies} policies,
{base.num_envs} environments, {base.num_iterations * base.steps_per_iteration / 1e6:.1f} M steps,
β {base.pull.beta}, entropy scale {base.update.entropy_scale}, no adversarial reward.
Deviation, ESS and KL: mean over the last quarter of training, then mean ± deviation over seeds.
`all nearest`: seeds in which the leader is the nearest policy to every one of the 5 followers, by the KL
matrix averaged over the last {MEASUREMENTS} measurements.

{markdown(headings, lines)}

{NOTES[base.task]}

![over training](curves.png)
""")
    draw(folder, list(methods(base)))


def _spread(values: list[float], how: str = ".3f") -> str:
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):{how}} ± {deviation:{how}}"


def draw(folder: Path, names: list[str]) -> None:
    """IS deviation, ESS and return over training."""
    from studies.drawing import draw_mean, panels, save

    rows = read(folder / "curves.csv")
    colours = dict(zip(names, ("#000000", "#E69F00", "#56B4E9", "#0072B2", "#CC79A7"), strict=True))
    titles = {"is_deviation": "IS-ratio deviation", "ess": "effective sample size", "return/leader": "return"}
    figure, axes = panels(len(titles))
    for axis, (column, title) in zip(axes, titles.items(), strict=True):
        for method, colour in colours.items():
            draw_mean(axis, [row for row in rows if row["method"] == method], column, colour, method)
        axis.set(title=title, xlabel="million environment steps")
    axes[-1].legend(frameon=False)
    save(figure, folder / "curves.png")


STUDIES = {
    name: Study(methods(base), COLUMNS, partial(write, name, base), figures=nearest, episodes=0, workers=workers)
    for name, base, workers in (("coupling_hopper", HOPPER, 2), ("coupling_allegro_hand", ALLEGRO_HAND, 5))
}
