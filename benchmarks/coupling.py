"""Does CPO hold the followers near the leader, and the more so the smaller its temperature λ_f?

    python benchmarks/coupling.py                                       # Hopper on the CPU, 25 runs
    python benchmarks/coupling.py --study allegro_hand --workers 5      # AllegroHand on a CUDA GPU

The paper's second table on other tasks: IS-ratio deviation and effective sample size of SAPG, and of CPO with λ_f 0.5,
0.2, 0.1 and 0.05, and whether the leader is the nearest policy to every follower. Goes on where it stopped; writes
`results/coupling_STUDY/`.
"""

import argparse
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import study
import torch
from matplotlib import pyplot as plt

from echelon.config import DiagnosticsConfig, TrainConfig
from echelon.diagnostics.divergence import nearest_policy
from echelon.presets import preset
from echelon.presets.variants import VARIANTS
from echelon.runs.distances import read_distances
from echelon.runs.folder import RunFolder

COLUMNS = ["return/leader", "is_deviation", "ess", "kl/follower_to_leader", "nearest_is_leader", "lr", "pull/weight"]
MEASUREMENTS = 11
"""The paper averages over eleven iterations; so do we, over the last eleven measurements."""
STUDIES = {
    "hopper": replace(preset("Hopper"), env_steps=600_000, diagnostics=DiagnosticsConfig(every=2)),
    "allegro_hand": replace(
        VARIANTS["lambda_f_0.2"](preset("AllegroHand")),  # the paper's ablation: β 0.001 and no adversarial reward
        num_envs=6144,
        iterations=150,
        device="cuda",
        diagnostics=DiagnosticsConfig(every=5),
    ),
}

NOTES = {
    "Hopper": (
        "Deviation falls and ESS rises in the paper's order. The leader is nearer than the nearest other follower on\n"
        "average, but rarely for all five at once: with 3 actions and 85 environments a policy, chance brings some\n"
        "two followers closer, and the stronger the pull, the more all of them have the leader's last step in common.\n"
        "[AllegroHand](../coupling_allegro_hand/README.md), with 16 actions, shows it in every seed."
    ),
    "AllegroHand": (
        "Deviation falls, ESS rises and the leader is the nearest policy to every follower, as in the paper.\n"
        "Times are of 5 to 15 runs sharing the GPU, without captured graphs, and say nothing about speed. Returns are\n"
        "of the first episodes: 7.4 M steps are a beginning."
    ),
}


def methods(base: TrainConfig) -> dict[str, TrainConfig]:
    """SAPG and CPO at the paper's four temperatures."""
    temperatures = {f"cpo λ_f={value}": replace(base.pull, temperature=value) for value in (0.5, 0.2, 0.1, 0.05)}
    coupled = {name: replace(base, algo="cpo", pull=pull) for name, pull in temperatures.items()}
    return {"sapg": replace(base, algo="sapg")} | coupled


def nearest(folder: RunFolder) -> dict[str, Any]:
    """KL of followers to the leader, and to the nearest other follower, from the mean of the last matrices."""
    matrices = torch.tensor([line["kl"] for line in read_distances(folder)[-MEASUREMENTS:]])
    kl = matrices.mean(0)
    count = int((nearest_policy(kl)[1:] == 0).sum())
    others = kl[1:, 1:].clone().fill_diagonal_(float("inf")).min(1).values
    return {
        "followers_nearest_to_leader": count,
        "kl_to_leader": f"{kl[1:, 0].mean():.4g}",
        "kl_to_nearest_follower": f"{others.mean():.4g}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--study", choices=STUDIES, default="hopper")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    base = STUDIES[args.study]
    cells = study.grid(methods(base), range(args.seeds))
    folder = study.run(f"coupling_{args.study}", cells, study.Summary(COLUMNS, nearest, episodes=0), args.workers)
    write_page(folder, base)
    draw(folder, list(methods(base)))


def write_page(folder: Path, base: TrainConfig) -> None:
    """The paper's table, with the spread over seeds."""
    rows = study.read(folder / "runs.csv")
    lines = [
        f"# Coupling on {base.task}",
        "",
        f"`python benchmarks/coupling.py` on {study.machine()}: {base.num_policies} policies,",
        f"{base.num_envs} environments, {base.num_iterations * base.num_envs * base.update.horizon / 1e6:.1f} M steps,",
        f"β {base.pull.beta}, entropy scale {base.update.entropy_scale}, no adversarial reward.",
        "Deviation, ESS and KL: mean over the last quarter of training, then mean ± deviation over seeds.",
        "`all nearest`: seeds in which the leader is the nearest policy to every one of the 5 followers, by the KL",
        f"matrix averaged over the last {MEASUREMENTS} measurements.",
        "",
        "| method | seeds | IS deviation | ESS | KL to leader | KL to nearest follower | all nearest | return |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for method in methods(base):
        mine = [row for row in rows if row["method"] == method]
        if not mine:
            continue
        names = ("final_is_deviation", "final_ess", "kl_to_leader", "kl_to_nearest_follower")
        figures = " | ".join(_spread([float(row[name]) for row in mine]) for name in names)
        nearest_seeds = sum(row["followers_nearest_to_leader"] == "5" for row in mine)
        returns = _spread([float(row["final_return/leader"]) for row in mine], ".0f")
        lines.append(f"| {method} | {len(mine)} | {figures} | {nearest_seeds} of {len(mine)} | {returns} |")
    lines += ["", NOTES[base.task], "", "![over training](curves.png)"]
    (folder / "README.md").write_text("\n".join(lines) + "\n")


def _spread(values: list[float], how: str = ".3f") -> str:
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):{how}} ± {deviation:{how}}"


def draw(folder: Path, names: list[str]) -> None:
    """IS deviation and ESS over training."""
    rows = study.read(folder / "curves.csv")
    colors = dict(zip(names, ("#000000", "#E69F00", "#56B4E9", "#0072B2", "#CC79A7"), strict=True))
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.4), layout="constrained")
    titles = {"is_deviation": "IS-ratio deviation", "ess": "effective sample size", "return/leader": "return"}
    for axis, (column, title) in zip(axes, titles.items(), strict=True):
        for method, color in colors.items():
            points: dict[int, list[float]] = {}
            for row in rows:
                if row["method"] == method and row[column]:
                    points.setdefault(int(row["env_steps"]), []).append(float(row[column]))
            steps = sorted(points)
            axis.plot([s / 1e6 for s in steps], [statistics.mean(points[s]) for s in steps], color=color, label=method)
        axis.set(title=title, xlabel="million environment steps")
        axis.grid(alpha=0.3)
    axes[-1].legend(frameon=False)
    figure.savefig(folder / "curves.png", dpi=110)


if __name__ == "__main__":
    main()
