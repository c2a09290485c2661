"""The paper's tables and figures: what must be trained for them, and our numbers beside those that the paper prints.

Published numbers are those of the tables of *Coupled Policy Optimization*, trained in Isaac Gym for 2·10¹⁰ environment
steps with five seeds; no number is read off a curve. Returns of another simulator are not expected to agree.
"""

import math
from dataclasses import replace
from typing import NamedTuple

from echelon.console.wording import pair
from echelon.report.contents import Contents
from echelon.report.methods import Method
from echelon.report.reading import Run
from echelon.report.statistics import sample
from echelon.report.write import Row

FOUR = ("ppo", "pbt", "sapg", "cpo")
LAMBDAS = ("lambda_f_0.5", "lambda_f_0.2", "lambda_f_0.1", "lambda_f_0.05")
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
MEASUREMENTS = 11
"""Table 2 averages over eleven iterations, we over the last eleven measurements."""
OVERHEAD = {"no_adversary": 0.24, "CPO": 0.52}
"""Extra wall-clock time relative to SAPG with 24,576 environments; the paper does not name the task."""


class Exhibit(NamedTuple):
    """A table or figure of the paper, and what must be trained for it."""

    title: str
    tasks: tuple[str, ...]
    methods: tuple[str, ...]
    """Algorithms and variants by name."""


EXHIBITS = {
    "table1": Exhibit("Performance on dexterous manipulation", (*TABLE_1,), FOUR),
    "figure2": Exhibit(
        "Learning curves on ten tasks", (*TABLE_1, "FrankaCubePush", "FrankaCubeStack", "Humanoid", "Anymal"), FOUR
    ),
    "coupling": Exhibit("Strength of the KL term, IS deviation and ESS", (*TABLE_2,), ("sapg", *LAMBDAS)),
    "kl_maps": Exhibit(
        "KL divergence between policies over training",
        ("ShadowHand", "AllegroKukaReorientation", "AllegroKukaRegrasping"),
        ("sapg", "cpo"),
    ),
    "ablations": Exhibit(
        "CPO without KL term and without adversarial reward",
        ("ShadowHand", "AllegroHand"),
        ("cpo", "unpaid_adversary", "no_pull"),
    ),
    "entropy": Exhibit(
        "SAPG with and without entropy bonus",
        ("ShadowHand", "AllegroKukaRegrasping", "AllegroKukaReorientation"),
        ("sapg+entropy_off", "sapg+entropy_on"),
    ),
    "overhead": Exhibit("What the KL term and the adversary cost", ("ShadowHand",), ("sapg", "no_adversary", "cpo")),
}
"""Every exhibit by name."""


def published(task: str, method: str) -> dict[str, str]:
    """What the paper prints about a method on a task, by quantity."""
    found: dict[str, str] = {}
    if task in TABLE_1 and method.lower() in FOUR:
        found["score"] = pair(*TABLE_1[task][FOUR.index(method.lower())])
    if task in TABLE_2 and method in ("SAPG", *LAMBDAS):
        numbers = TABLE_2[task][("SAPG", *LAMBDAS).index(method)]
        found |= {name: f"{x:.3g}" for name, x in zip(("is_deviation", "ess"), numbers, strict=True)}
    return found | ({"time over SAPG's": f"{OVERHEAD[method]:+.0%}"} if method in OVERHEAD else {})


def beside_the_paper(contents: Contents) -> list[Row]:
    """Our numbers and the paper's, a row for each that it prints."""
    rows: list[Row] = [["task", "method", "", "ours", "the paper's"]]
    for task in contents.tasks:
        for method in contents.methods:
            for quantity, theirs in published(task, method.name).items():
                rows.append([task, method.name, quantity, _measured(contents, method, task, quantity), theirs])
    return rows


def _measured(contents: Contents, method: Method, task: str, quantity: str) -> str:
    """A quantity of our own runs as text."""
    if quantity == "score":
        counts = task.startswith("AllegroKuka")  # where the paper counts successes
        ours = replace(contents, score="successes/leader") if counts else contents
        found = sample(ours.scores(method, task))
        return f"{pair(found.mean, found.deviation)} ({found.runs}), {ours.basis_words(task)}" if found.runs else "–"
    if quantity in ("is_deviation", "ess"):
        measured = [run.known(quantity)[-MEASUREMENTS:] for run in method.counted(task)]
        found = sample([float(last.mean()) for last in measured if len(last)])
        return pair(found.mean, found.deviation)
    seconds = {one.name: sample([_seconds(run) for run in one.counted(task)]).mean for one in contents.methods}
    more = seconds[method.name] / seconds.get("SAPG", math.nan) - 1
    return f"{pair(seconds[method.name], math.nan)} s{f' ({more:+.0%})' if math.isfinite(more) else ''}"


def _seconds(run: Run) -> float:
    """Seconds of an iteration without its diagnostics."""
    return sum(mean for part, mean in run.seconds.items() if part != "diagnostics")
