"""PPO, SAPG and CPO on DeceptiveReach, twenty seeds each, at equal environment steps; and controls, which say why the
comparison came out as it did.

With `OMP_NUM_THREADS=1`. Rewrites the part of `results/deceptive_reach/README.md` between its two markers, and
`curves.png`.
"""

import statistics
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
from command import markdown

from echelon.config import TrainConfig
from echelon.presets import preset
from echelon.presets.variants import VARIANTS
from echelon.report.statistics import Scores, bootstrap_interval, interquartile_mean, probability_of_improvement
from echelon.runs.folder import RunFolder
from echelon.runs.metrics import read_metrics
from studies.running import Row, Study, read

BASE = replace(preset("DeceptiveReach"), device="cpu")
STEPS = VARIANTS["sapg_cpo_steps"](BASE)
"""SAPG with as many optimizer steps per iteration as CPO takes."""


def group_scope(config: TrainConfig) -> TrainConfig:
    """Advantages normalised within each group of rows, instead of over all of them together."""
    return replace(config, ensemble=replace(config.ensemble, advantage_scope="group"))


METHODS = {
    "ppo": replace(BASE, algo="ppo"),
    "sapg": replace(BASE, algo="sapg"),
    "sapg_cpo_steps": STEPS,
    "cpo": replace(BASE, algo="cpo"),
}
CONTROLS = {
    # The entropy bonus that the ensemble's policies get on average.
    "ppo_entropy": replace(METHODS["ppo"], update=replace(BASE.update, entropy_coef=BASE.update.entropy_scale / 4)),
    "ppo_cpo_steps": replace(METHODS["ppo"], update=STEPS.update),
    "no_pull": VARIANTS["no_pull"](BASE),
    "cpo_group": group_scope(METHODS["cpo"]),
    "sapg_cpo_steps_group": group_scope(STEPS),
}
BEGIN, END = "<!-- written by benchmarks/study.py deceptive_reach -->", "<!-- end -->"
DRAWN = {
    "ppo": ("PPO", "#7f7f7f", "-"),
    "sapg": ("SAPG", "#1f77b4", "-"),
    "sapg_cpo_steps": ("SAPG with CPO's steps", "#17a2b8", "-"),
    "cpo": ("CPO", "#d62728", "-"),
    "cpo_group": ("control: CPO, advantages per group", "#d62728", "--"),
}
"""Label, colour and line style of the methods in the figure."""
SHOWN = {
    "IS deviation": "is_deviation",
    "ESS": "ess",
    "KL follower to leader": "kl/follower_to_leader",
    "nearest is leader": "nearest_is_leader",
    "σ leader": "sigma_leader",
    "σ followers": "sigma_followers",
    "pull weight": "pull/weight",
    "at cap": "pull/at_cap",
}
PAIRS = (
    ("cpo", "sapg"),
    ("cpo", "sapg_cpo_steps"),
    ("cpo", "ppo"),
    ("sapg", "ppo"),
    ("sapg_cpo_steps", "sapg"),
    ("sapg_cpo_steps", "ppo_cpo_steps"),
    ("cpo_group", "cpo"),
    ("cpo_group", "sapg_cpo_steps_group"),
)
Table = dict[str, dict[str, Scores]]
"""Method, then column, then a value per run in order of seeds; NaN where a cell is empty."""


def course(run: RunFolder, folder: Path) -> Row:
    """Milestones in environment steps, spread of the policies, and diagnostics averaged over the run.

    What did not happen, and what a method does not have, is left out.
    """
    metrics = read_metrics(run)
    anybody = (line for line in metrics if any(line[name] > 0 for name in line if name.startswith("successes/")))
    leader = (line for line in metrics if line["successes/leader"] >= 0.5)
    sigmas = [[line[name] for name in line if name.startswith("sigma/")] for line in metrics]
    row: Row = {"sigma_leader": statistics.fmean(sigma[0] for sigma in sigmas)}
    if len(sigmas[0]) > 1:
        row["sigma_followers"] = statistics.fmean(statistics.fmean(sigma[1:]) for sigma in sigmas)
    for name in set(SHOWN.values()) - {"sigma_leader", "sigma_followers"}:
        if values := [line[name] for line in metrics if name in line]:
            row[name] = statistics.fmean(values)
    row = {name: f"{value:.6g}" for name, value in row.items()}
    for name, lines in (("first_success_steps", anybody), ("leader_half_steps", leader)):
        if (line := next(lines, None)) is not None:
            row[name] = int(line["env_steps"])
    return row


def read_runs(folder: Path) -> Table:
    """`runs.csv` by method and column; the compared methods first."""
    table: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in sorted(read(folder / "runs.csv"), key=lambda row: int(row["seed"])):
        for name, value in row.items():
            if name != "method":
                table[row["method"]][name].append(float(value or "nan"))
    order = [*METHODS, *sorted(set(table) - set(METHODS))]
    return {
        method: {name: np.array(column) for name, column in table[method].items()}
        for method in order
        if method in table
    }


def scores_table(table: Table) -> str:
    """Scores with their intervals."""
    headings = (
        *("method", "deterministic return, IQM (95 %)", "sampled return, IQM (95 %)", "runs whose leader solves it"),
        *("runs in which any policy ever reached the goal", "CPU s per run"),
    )

    def cells(columns: dict[str, Scores]) -> list[str]:
        seeds = len(columns["seed"])
        solved = (columns["successes"] >= 0.5).sum()
        found = np.isfinite(columns["first_success_steps"]).sum()
        returns = [_iqm(columns[name]) for name in ("return", "return_sampled")]
        return [*returns, f"{solved}/{seeds}", f"{found}/{seeds}", f"{columns['cpu_s'].mean():.1f}"]

    return markdown(headings, ([method, *cells(columns)] for method, columns in table.items()))


def _iqm(scores: Scores) -> str:
    low, high = bootstrap_interval(scores)
    return f"{interquartile_mean(scores):.1f} ({low:.1f} to {high:.1f})"


def improvement_table(table: Table) -> str:
    """How often one method's run beats another's. By successes, two runs that both solve it draw."""
    lines = [
        [
            f"{ours} over {theirs}",
            *(_chance(table[ours][name], table[theirs][name]) for name in ("return", "successes")),
        ]
        for ours, theirs in PAIRS
        if ours in table and theirs in table
    ]
    return markdown(("probability of improvement (95 %)", "by return", "by successes"), lines)


def _chance(ours: Scores, theirs: Scores) -> str:
    low, high = bootstrap_interval(ours, theirs, statistic=probability_of_improvement)
    return f"{probability_of_improvement(ours, theirs):.2f} ({low:.2f} to {high:.2f})"


def diagnostics_table(table: Table) -> str:
    """Diagnostics averaged over a run, then the median over seeds."""

    def cells(columns: dict[str, Scores]) -> list[str]:
        medians = [np.median(columns[name]) for name in SHOWN.values()]
        return ["-" if np.isnan(x) else f"{x:.2f}" for x in medians]

    return markdown(("method", *SHOWN), ([method, *cells(columns)] for method, columns in table.items()))


def draw(table: Table, folder: Path) -> None:
    """Learning curves (IQM over seeds with its interval) beside every run's final score."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4), width_ratios=(3, 2), layout="constrained")
    curves, jitter = read(folder / "curves.csv"), np.random.default_rng(0)
    methods = [method for method in DRAWN if method in table]
    for place, method in enumerate(methods):
        label, colour, style = DRAWN[method]
        points: dict[int, list[float]] = defaultdict(list)
        for row in curves:
            if row["method"] == method:
                points[int(row["env_steps"])].append(float(row["return/leader"]))
        steps = np.array(sorted(points))
        left.plot(
            steps / 1e3, [interquartile_mean(points[s]) for s in steps], color=colour, linestyle=style, label=label
        )
        if method in METHODS:
            bands = np.array([bootstrap_interval(np.array(points[step]), resamples=2000) for step in steps])
            left.fill_between(steps / 1e3, bands[:, 0], bands[:, 1], color=colour, alpha=0.15, linewidth=0)
        scores = table[method]["return"]
        right.scatter(place + jitter.uniform(-0.25, 0.25, len(scores)), scores, s=14, color=colour, alpha=0.6)
    seeds = len(table[methods[0]]["seed"])
    left.set(xlabel="environment steps (thousands)", ylabel="return of the leader", ylim=(0, 56))
    left.set_title(f"training, IQM of {seeds} seeds and its 95 % interval", fontsize=10)
    left.axhline(4.5, color="black", linewidth=0.8, linestyle=":")
    left.text(0, 5.2, "the most the trap pays", fontsize=8)
    left.legend(frameon=False, fontsize=8, loc="upper left")
    names = ["PPO", "SAPG", "SAPG,\nCPO's steps", "CPO", "CPO,\nper group"]
    right.set_xticks(range(len(methods)), names[: len(methods)], fontsize=8)
    right.set(ylim=(0, 56), ylabel="return of the deterministic leader")
    right.set_title("every run, after training", fontsize=10)
    figure.savefig(folder / "curves.png", dpi=130)
    plt.close(figure)


def write(folder: Path) -> None:
    """Rewrite the README's generated part and the figure."""
    table = read_runs(folder)
    draw(table, folder)
    compared = {method: columns for method, columns in table.items() if method in METHODS}
    controls = {method: columns for method, columns in table.items() if method not in METHODS}
    parts = [scores_table(compared), "![learning curves](curves.png)"]
    parts += ["Controls:", scores_table(controls)] if controls else []
    parts += [improvement_table(table), "Diagnostics:", diagnostics_table(table)]
    path = folder / "README.md"
    text = path.read_text() if path.exists() else f"# DeceptiveReach\n\n{BEGIN}\n{END}\n"
    before, rest = text.split(BEGIN)
    generated = "\n\n".join([BEGIN, *parts, END])
    path.write_text(before + generated + rest.split(END)[1])


STUDIES = {
    "deceptive_reach": Study(
        METHODS,
        ["return/leader", "successes/leader"],
        write,
        controls=CONTROLS,
        seeds=dict.fromkeys([*METHODS, *CONTROLS], 20),
        figures=course,
        episodes=256,
        points=20,
    )
}
