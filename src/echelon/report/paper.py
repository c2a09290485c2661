"""The paper's tables and figures from runs of our own, beside the numbers that the paper prints.

Published numbers are those of the tables of *Coupled Policy Optimization*, trained in Isaac Gym for 2·10¹⁰ environment
steps with five seeds; no number is read off a curve. Returns of another simulator are not expected to agree.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib import rc_context

from echelon.report.contents import Contents
from echelon.report.figures import STYLE, kl_figures, method_curves, save_figure
from echelon.report.methods import Method
from echelon.report.payload import throughput
from echelon.report.significance import Sample, sample
from echelon.report.tables import Entry, Table, coupling_samples, pair, scores, write_table
from echelon.report.write import read_contents

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
    "ShadowHand": {
        "SAPG": (0.889, 0.0223),
        "lambda_f_0.5": (0.403, 0.763),
        "lambda_f_0.2": (0.297, 0.871),
        "lambda_f_0.1": (0.222, 0.923),
        "lambda_f_0.05": (0.187, 0.941),
    },
    "AllegroKukaReorientation": {
        "SAPG": (0.608, 0.110),
        "lambda_f_0.5": (0.420, 0.721),
        "lambda_f_0.2": (0.276, 0.888),
        "lambda_f_0.1": (0.214, 0.929),
        "lambda_f_0.05": (0.199, 0.938),
    },
}
"""Mean IS deviation and ESS rate at 5·10⁹ steps."""
OVERHEAD = {"no_adversary": 0.24, "CPO": 0.52}
"""More wall-clock time than SAPG takes, with 24,576 environments; the text does not say of which task."""
LAMBDAS = ("lambda_f_0.5", "lambda_f_0.2", "lambda_f_0.1", "lambda_f_0.05")

Draw = Callable[[Sequence[Path], Path, float], None]


@dataclass(frozen=True)
class Exhibit:
    """A table or figure of the paper: what must be trained for it, and how it is drawn."""

    title: str
    tasks: tuple[str, ...]
    methods: tuple[str, ...]
    """Algorithms and variants by name."""
    draw: Draw
    """From run folders into a folder, at a width in inches."""


def _curves(*metrics: str, maps: bool = False) -> Draw:
    """Learning curves, mean and deviation as in the paper, and curves of `metrics`."""

    def draw(paths: Sequence[Path], out: Path, width: float) -> None:
        contents = read_contents(paths, "return")
        with rc_context(STYLE):
            for metric in (contents.score, *metrics):
                figure = method_curves(contents, metric, width)
                if figure is not None:
                    save_figure(figure, out / metric.removesuffix("/leader").replace("/", "_"))
            for name, figure in kl_figures(contents, width) if maps else ():
                save_figure(figure, out / name)
        write_table(scores(contents), out / "scores")

    return draw


def _table_1(paths: Sequence[Path], out: Path, width: float) -> None:
    """Final scores by task and method, ours above the paper's: successes where the paper counts them."""
    contents = read_contents(paths, "return")
    names = [method.name for method in contents.methods]
    rows = []
    for task in contents.tasks:
        counted = task.startswith("AllegroKuka")
        score = "successes/leader" if counted else contents.score
        ours = Contents(contents.runs, contents.methods, [], score)
        basis = ours.basis(task)
        found = {method.name: sample(ours.scores(method, task)) for method in contents.methods}
        what = f"{'successes' if counted else 'return'}, {'evaluated' if basis.evaluated else 'in training'}"
        where = "" if basis.steps is None else f" at {basis.steps:.2g} steps"
        rows.append([Entry(task), Entry(f"here: {what}{where}"), *(_measured(found[name]) for name in names)])
        published = dict(zip(PUBLISHED_METHODS, TABLE_1.get(task, ()), strict=False))
        theirs = (Entry(pair(*published[name])) if name in published else Entry("–") for name in names)
        rows.append([Entry(""), Entry("the paper's"), *theirs])
    caption = (
        "Mean ± deviation, number of runs in brackets. The paper's are from its Table 1: five runs after 2·10^10 "
        "environment steps in another simulator."
    )
    write_table(Table(["Task", "", *names], rows, caption), out / "table1")


def _measured(found: Sample) -> Entry:
    return Entry(f"{pair(found.mean, found.deviation)} ({found.runs})" if found.runs else "–")


def _coupling(paths: Sequence[Path], out: Path, width: float) -> None:
    """IS deviation and effective sample size, ours beside the paper's, and their curves."""
    contents = read_contents(paths, "return")
    rows = []
    for task, method, samples in coupling_samples(contents):
        published = TABLE_2.get(task, {}).get(method, (math.nan, math.nan))
        pairs = zip(samples, published, strict=True)
        cells = [text for ours, theirs in pairs for text in (pair(ours.mean, ours.deviation), _number(theirs))]
        rows.append([Entry(task), Entry(method), *map(Entry, cells)])
    heads = ["Task", "Method", "IS deviation", "the paper's", "ESS", "the paper's"]
    caption = "When last measured, mean ± deviation over runs. The paper's are from its Table 2, at 5·10^9 steps."
    write_table(Table(heads, rows, caption), out / "coupling")
    _curves("is_deviation", "ess", "kl/follower_to_leader")(paths, out, width)


def _number(value: float) -> str:
    return f"{value:.3g}" if math.isfinite(value) else "–"


def _overhead(paths: Sequence[Path], out: Path, width: float) -> None:
    """Seconds of an iteration, and how much more than SAPG's."""
    contents = read_contents(paths, "return")
    rows = []
    for task in contents.tasks:
        seconds = {method.name: _seconds(contents, method, task) for method in contents.methods}
        base = seconds.get("SAPG", math.nan)
        for name, value in seconds.items():
            more = f"{value / base - 1:+.0%}" if math.isfinite(value / base) else "–"
            theirs = f"{OVERHEAD[name]:+.0%}" if name in OVERHEAD else "–"
            rows.append([Entry(task), Entry(name), Entry(pair(value, math.nan)), Entry(more), Entry(theirs)])
    caption = (
        "Seconds of an iteration, mean over a run without its diagnostics, and how much more than SAPG takes. The "
        "paper's are from its appendix, of 24,576 environments."
    )
    heads = ["Task", "Method", "Seconds", "more than SAPG", "the paper's"]
    write_table(Table(heads, rows, caption), out / "overhead")


def _seconds(contents: Contents, method: Method, task: str) -> float:
    parts = [throughput(run)["parts"] for run in contents.counted(method, task)]
    totals = [sum(value for name, value in one.items() if name != "diagnostics") for one in parts if one]
    return float(np.mean(totals)) if totals else math.nan


EXHIBITS = {
    "table1": Exhibit("Performance on dexterous manipulation", DEXTEROUS, ("ppo", "pbt", "sapg", "cpo"), _table_1),
    "figure2": Exhibit("Learning curves on ten tasks", ALL_TASKS, ("ppo", "pbt", "sapg", "cpo"), _curves()),
    "lambda": Exhibit("Strength of the KL term", tuple(TABLE_2), ("sapg", *LAMBDAS), _curves()),
    "coupling": Exhibit("IS deviation and effective sample size", tuple(TABLE_2), ("sapg", *LAMBDAS), _coupling),
    "ablations": Exhibit(
        "CPO without KL term and without adversarial reward",
        ("ShadowHand", "AllegroHand"),
        ("cpo", "no_adversary", "no_pull"),
        _curves("adversary/loss", maps=True),
    ),
    "entropy": Exhibit(
        "SAPG with and without entropy bonus",
        ("ShadowHand", "AllegroKukaRegrasping", "AllegroKukaReorientation"),
        ("sapg+entropy_off", "sapg+entropy_on"),
        _curves("kl/follower_to_leader", maps=True),
    ),
    "overhead": Exhibit(
        "What the KL term and the adversary cost", ("ShadowHand",), ("sapg", "no_adversary", "cpo"), _overhead
    ),
}
"""Every exhibit by name."""
