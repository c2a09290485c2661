"""The DeceptiveReach study's table and figure, from `runs.csv` and `curves.csv` alone.

    python benchmarks/deceptive_reach_summary.py

Rewrites the part of `results/deceptive_reach/README.md` between its two markers, and `curves.png`.
"""

from collections import defaultdict

import numpy as np
import study

from echelon.report.statistics import Scores, bootstrap_interval, interquartile_mean, probability_of_improvement

RESULTS = study.RESULTS / "deceptive_reach"
BEGIN, END = "<!-- written by benchmarks/deceptive_reach_summary.py -->", "<!-- end -->"
COMPARED = ("ppo", "sapg", "sapg_cpo_steps", "cpo")
DRAWN = {
    "ppo": ("PPO", "#7f7f7f", "-"),
    "sapg": ("SAPG", "#1f77b4", "-"),
    "sapg_cpo_steps": ("SAPG with CPO's steps", "#17a2b8", "-"),
    "cpo": ("CPO", "#d62728", "-"),
    "cpo_group": ("control: CPO, advantages per group", "#d62728", "--"),
}
"""Label, colour and line style of the methods in the figure."""

Table = dict[str, dict[str, Scores]]
"""Method, then column, then a value per run in order of seeds; NaN where a cell is empty."""


def read_runs() -> Table:
    """`runs.csv` by method and column."""
    rows = sorted(study.read(RESULTS / "runs.csv"), key=lambda row: int(row["seed"]))
    table: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        for name, value in row.items():
            if name != "method":
                table[row["method"]][name].append(float(value or "nan"))
    order = [*COMPARED, *sorted(set(table) - set(COMPARED))]
    return {
        method: {name: np.array(column) for name, column in table[method].items()}
        for method in order
        if method in table
    }


def read_curves() -> dict[str, tuple[Scores, Scores]]:
    """Per method the environment steps `[P]` and the leader's training return `[runs, P]`."""
    steps: dict[str, set[int]] = defaultdict(set)
    values: dict[str, dict[int, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for row in study.read(RESULTS / "curves.csv"):
        steps[row["method"]].add(int(row["env_steps"]))
        values[row["method"]][int(row["seed"])][int(row["env_steps"])] = float(row["return"])
    return {
        method: (
            np.array(sorted(steps[method])),
            np.array([[run[step] for step in sorted(steps[method])] for run in values[method].values()]),
        )
        for method in values
    }


def scores_table(table: Table) -> list[str]:
    """Markdown: scores with their intervals."""
    lines = [
        "| method | deterministic return, IQM (95 %) | sampled return, IQM (95 %) | runs whose leader solves it "
        "| runs in which any policy ever reached the goal | CPU s per run |",
        "|---|---|---|---|---|---|",
    ]
    for method, columns in table.items():
        solved = int((columns["successes_deterministic"] >= 0.5).sum())
        seeds = len(columns["seed"])
        found = int(np.isfinite(columns["first_success_steps"]).sum())
        lines.append(
            f"| {method} | {_iqm(columns['return_deterministic'])} | {_iqm(columns['return_sampled'])} "
            f"| {solved}/{seeds} | {found}/{seeds} | {columns['cpu_s'].mean():.1f} |"
        )
    return lines


def _iqm(scores: Scores) -> str:
    low, high = bootstrap_interval(scores)
    return f"{interquartile_mean(scores):.1f} ({low:.1f} to {high:.1f})"


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


def improvement_table(table: Table) -> list[str]:
    """Markdown: how often one method's run beats another's. By successes, two runs that both solve it draw."""
    lines = ["| probability of improvement (95 %) | by return | by successes |", "|---|---|---|"]
    for ours, theirs in PAIRS:
        if ours in table and theirs in table:
            names = ("return_deterministic", "successes_deterministic")
            cells = [_chance(table[ours][name], table[theirs][name]) for name in names]
            lines.append(f"| {ours} over {theirs} | {' | '.join(cells)} |")
    return lines


def _chance(ours: Scores, theirs: Scores) -> str:
    low, high = bootstrap_interval(ours, theirs, statistic=probability_of_improvement)
    return f"{probability_of_improvement(ours, theirs):.2f} ({low:.2f} to {high:.2f})"


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


def diagnostics_table(table: Table) -> list[str]:
    """Markdown: diagnostics averaged over a run, then the median over seeds."""
    lines = [f"| method | {' | '.join(SHOWN)} |", "|---" * (len(SHOWN) + 1) + "|"]
    for method, columns in table.items():
        cells = [np.median(columns[name]) for name in SHOWN.values()]
        lines.append(f"| {method} | " + " | ".join("-" if np.isnan(x) else f"{x:.2f}" for x in cells) + " |")
    return lines


def draw(table: Table) -> None:
    """Learning curves (IQM over seeds with its interval) beside every run's final score."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4), width_ratios=(3, 2), layout="constrained")
    curves, jitter = read_curves(), np.random.default_rng(0)
    methods = [method for method in DRAWN if method in table]
    for place, method in enumerate(methods):
        label, colour, style = DRAWN[method]
        steps, returns = curves[method]
        left.plot(steps / 1e3, interquartile_mean(returns.T), color=colour, linestyle=style, label=label)
        if method in COMPARED:
            bands = np.array([bootstrap_interval(column, resamples=2000) for column in returns.T])
            left.fill_between(steps / 1e3, bands[:, 0], bands[:, 1], color=colour, alpha=0.15, linewidth=0)
        scores = table[method]["return_deterministic"]
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
    figure.savefig(RESULTS / "curves.png", dpi=130)
    plt.close(figure)


def write_summary() -> None:
    """Rewrite the README's generated part and the figure."""
    table = read_runs()
    draw(table)
    compared = {method: columns for method, columns in table.items() if method in COMPARED}
    controls = {method: columns for method, columns in table.items() if method not in COMPARED}
    parts = [scores_table(compared), ["![learning curves](curves.png)"]]
    if controls:
        parts += [["Controls:"], scores_table(controls)]
    parts += [improvement_table(table), ["Diagnostics:"], diagnostics_table(table)]
    generated = "\n\n".join("\n".join(part) for part in parts)
    path = RESULTS / "README.md"
    text = path.read_text() if path.exists() else f"# DeceptiveReach\n\n{BEGIN}\n{END}\n"
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    path.write_text(f"{before}{BEGIN}\n\n{generated}\n\n{END}{after}")


if __name__ == "__main__":
    write_summary()
