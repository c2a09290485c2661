"""The paper's tables and figures from runs of our own, beside the numbers that the paper prints.

Published numbers are those of the tables of *Coupled Policy Optimization*, trained in Isaac Gym for 2·10¹⁰ environment
steps with five seeds; no number is read off a curve. Returns of another simulator are not expected to agree.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from echelon.console.wording import pair
from echelon.report.contents import Contents
from echelon.report.figures import write_figures
from echelon.report.methods import Method
from echelon.report.page import throughput
from echelon.report.statistics import sample
from echelon.report.write import Row, read_contents, score_rows, write_table

DEXTEROUS = (
    *("ShadowHand", "AllegroHand", "AllegroKukaRegrasping", "AllegroKukaReorientation", "AllegroKukaThrow"),
    "AllegroKukaTwoArmsReorientation",
)
ALL_TASKS = (*DEXTEROUS, "FrankaCubePush", "FrankaCubeStack", "Humanoid", "Anymal")
PUBLISHED_METHODS = ("PPO", "PBT", "SAPG", "CPO")
TABLE_1 = {
    "ShadowHand": ((10661, 1050), (10294, 1728), (12882, 343), (13762, 414)),
    "AllegroHand": ((10439, 1282), (13239, 239), (11989, 817), (14421, 885)),
    "AllegroKukaRegrasping": ((0.76, 0.99), (35.26, 2.82), (37.20, 0.65), (37.44, 1.21)),
    "AllegroKukaReorientation": ((1.04, 0.98), (2.92, 4.27), (38.79, 1.66), (43.75, 0.65)),
    "AllegroKukaThrow": ((15.69, 3.34), (19.08, 1.02), (22.51, 1.15), (21.69, 2.44)),
    "AllegroKukaTwoArmsReorientation": ((1.41, 0.80), (26.43, 11.12), (5.11, 3.41), (35.30, 2.77)),
}
"""Mean and deviation by method at the end of training: the return of the two hands, successes of AllegroKuka."""
TABLE_2 = {
    "ShadowHand": ((0.889, 0.0223), (0.403, 0.763), (0.297, 0.871), (0.222, 0.923), (0.187, 0.941)),
    "AllegroKukaReorientation": ((0.608, 0.110), (0.420, 0.721), (0.276, 0.888), (0.214, 0.929), (0.199, 0.938)),
}
"""Mean IS deviation and ESS rate at 5·10⁹ steps, of SAPG and of each λ_f."""
OVERHEAD = {"no_adversary": 0.24, "CPO": 0.52}
"""Extra wall-clock time relative to SAPG with 24,576 environments; the paper does not name the task."""
LAMBDAS = ("lambda_f_0.5", "lambda_f_0.2", "lambda_f_0.1", "lambda_f_0.05")

PAPER = {("more than SAPG", "", name): f"{x:+.0%}" for name, x in OVERHEAD.items()}
for task, row in TABLE_1.items():
    PAPER |= {("score", task, name): pair(*x) for name, x in zip(PUBLISHED_METHODS, row, strict=True)}
for task, row in TABLE_2.items():
    for name, (deviation, ess) in zip(("SAPG", *LAMBDAS), row, strict=True):
        PAPER |= {("is_deviation", task, name): f"{deviation:.3g}", ("ess", task, name): f"{ess:.3g}"}
"""What the paper prints, by quantity, task and method."""


@dataclass(frozen=True)
class Exhibit:
    """A table or figure of the paper: what must be trained for it, and what it shows."""

    title: str
    tasks: tuple[str, ...]
    methods: tuple[str, ...]
    """Algorithms and variants by name."""
    quantities: tuple[str, ...] = ("score",)
    """Quantities of `PAPER` that are compared."""
    metrics: tuple[str, ...] = ()
    """Metrics drawn over training, in addition to the score."""

    def draw(self, paths: Sequence[Path], out: Path, width: float) -> list[Row]:
        """Draw figures into a folder at a width in inches, write the scores, and return ours beside the paper's."""
        contents = read_contents(paths, "return")
        write_figures(contents, out, width, self.metrics)
        write_table(score_rows(contents), out / "scores.tex")
        rows: list[Row] = [["task", "method", *(head for name in self.quantities for head in (name, "the paper's"))]]
        for task, method in itertools.product(contents.tasks, contents.methods):
            row = [task, method.name]
            for name in self.quantities:
                published = PAPER.get((name, task, method.name)) or PAPER.get((name, "", method.name), "–")
                row += [_measured(contents, method, task, name), published]
            rows.append(row)
        write_table(rows, out / "beside_the_paper.tex")
        return rows


def _measured(contents: Contents, method: Method, task: str, quantity: str) -> str:
    """A quantity of our own runs as text."""
    if quantity == "score":
        counts = task.startswith("AllegroKuka")  # where the paper counts successes
        ours = replace(contents, score="successes/leader") if counts else contents
        found = sample(ours.scores(method, task))
        return f"{pair(found.mean, found.deviation)} ({found.runs}), {ours.basis_words(task)}" if found.runs else "–"
    if quantity == "more than SAPG":
        seconds = {one.name: _seconds(one, task) for one in contents.methods}
        more = seconds[method.name] / seconds.get("SAPG", math.nan) - 1
        return f"{pair(seconds[method.name], math.nan)} s{f' ({more:+.0%})' if math.isfinite(more) else ''}"
    columns = [run.columns[quantity] for run in method.counted(task) if quantity in run.columns]
    found = sample([column[np.isfinite(column)][-1] for column in columns if np.isfinite(column).any()])
    return pair(found.mean, found.deviation)


def _seconds(method: Method, task: str) -> float:
    """Seconds of an iteration without its diagnostics, mean over runs."""
    parts = [throughput(run)[1] for run in method.counted(task)]
    return sample([sum(value for name, value in one.items() if name != "diagnostics") for one in parts if one]).mean


FOUR = ("ppo", "pbt", "sapg", "cpo")
COUPLING = ("is_deviation", "ess", "kl/follower_to_leader")
EXHIBITS = {
    "table1": Exhibit("Performance on dexterous manipulation", DEXTEROUS, FOUR),
    "figure2": Exhibit("Learning curves on ten tasks", ALL_TASKS, FOUR),
    "lambda": Exhibit("Strength of the KL term", tuple(TABLE_2), ("sapg", *LAMBDAS)),
    "coupling": Exhibit("IS deviation and ESS", tuple(TABLE_2), ("sapg", *LAMBDAS), ("is_deviation", "ess"), COUPLING),
    "ablations": Exhibit(
        "CPO without KL term and without adversarial reward",
        ("ShadowHand", "AllegroHand"),
        ("cpo", "no_adversary", "no_pull"),
        metrics=("adversary/loss",),
    ),
    "entropy": Exhibit(
        "SAPG with and without entropy bonus",
        ("ShadowHand", "AllegroKukaRegrasping", "AllegroKukaReorientation"),
        ("sapg+entropy_off", "sapg+entropy_on"),
        metrics=("kl/follower_to_leader",),
    ),
    "overhead": Exhibit(
        "What the KL term and the adversary cost", ("ShadowHand",), ("sapg", "no_adversary", "cpo"), ("more than SAPG",)
    ),
}
"""Every exhibit by name."""
