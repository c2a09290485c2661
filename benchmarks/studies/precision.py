"""Does learning suffer from cheaper matrix products? A quick task in TF32, FP32 and bf16, three seeds each, on a GPU.

Three runs share the device: how long an update takes in each precision is said by `speed.py --precision`.
On a CPU there is only FP32: `--methods fp32 --device cpu` tries the script.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from command import markdown

from echelon.algorithms import complete
from echelon.config import TrainConfig
from echelon.presets import preset
from echelon.runs.folder import RunFolder
from echelon.runs.metrics import read_metrics
from studies.running import Row, Rows, Study, machine, read

COLUMNS = ["return/leader", "loss/critic", "kl/rate", "lr"]
PRECISIONS: Sequence[Any] = ("tf32", "fp32", "bf16")
THRESHOLDS = {"Hopper": 1000.0, "CartpoleSwingup": 140.0}
"""Returns that a run of the preset passes on its way: about five sixths of where it ends."""
WINDOW = 5
"""Iterations over which the return is averaged before it is compared."""


def steps_to(threshold: float, lines: Sequence[dict[str, float]]) -> int | None:
    """Environment steps after which the leader's return, averaged over a window, first reached the threshold."""
    known = [line for line in lines if not math.isnan(line["return/leader"])]
    for end in range(WINDOW, len(known) + 1):
        window = known[end - WINDOW : end]
        if statistics.mean(line["return/leader"] for line in window) >= threshold:
            return int(window[-1]["env_steps"])
    return None


def reached(threshold: float, run: RunFolder, folder: Path) -> Row:
    return {"steps_to_threshold": steps_to(threshold, read_metrics(run)) or ""}


def page(rows: Rows, base: TrainConfig) -> str:
    """A line per precision."""
    lines = []
    for name in dict.fromkeys(row["method"] for row in rows):
        mine = sorted((row for row in rows if row["method"] == name), key=lambda row: int(row["seed"]))
        returns = [float(row["final_return/leader"] or "nan") for row in mine]
        deviation = statistics.stdev(returns) if len(returns) > 1 else 0.0
        steps = [row["steps_to_threshold"] for row in mine]
        by_seed = ", ".join(f"{value:.4g}" for value in returns)
        reached = ", ".join(f"{int(value) / 1e6:.2f}" if value else "never" for value in steps)
        lines.append((name, by_seed, f"{statistics.mean(returns):.4g} ± {deviation:.2g}", reached))
    headings = ("precision", "return, by seed", "mean ± deviation", "M steps to threshold, by seed")
    steps = base.num_iterations * base.steps_per_iteration
    return f"""\
# Precision of matrix products, {base.task}

`python benchmarks/study.py precision/{base.task}` on {machine(base.device)}:
{base.algo.upper()}, {complete(base).num_policies} policies, {base.num_envs} environments, {steps / 1e6:.2f} M steps.
Return: the leader's, with exploration noise, mean over the last quarter of training.
Steps: until that return, averaged over {WINDOW} iterations, first reached {THRESHOLDS[base.task]:g}.

{markdown(headings, lines)}
"""


def write(base: TrainConfig, folder: Path) -> None:
    (folder / "README.md").write_text(page(read(folder / "runs.csv"), base))


def study(task: str) -> Study:
    base = replace(preset(task), device="cuda")
    methods = {name: replace(base, precision=name) for name in PRECISIONS}
    figures = partial(reached, THRESHOLDS[task])
    seeds = dict.fromkeys(PRECISIONS, 3)
    return Study(methods, COLUMNS, partial(write, base), seeds=seeds, figures=figures, episodes=0, workers=3)


STUDIES = {f"precision/{task}": study(task) for task in THRESHOLDS}
