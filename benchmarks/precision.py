"""Does learning suffer from cheaper matrix products? A quick task in TF32, FP32 and bf16, three seeds each.

    python benchmarks/precision.py                                  # Hopper on a CUDA GPU, its preset's steps
    python benchmarks/precision.py --task CartpoleSwingup --env-steps 400000
    python benchmarks/precision.py --device cpu --seeds 1 --env-steps 20000

On a CPU there is only FP32, which tries the script. Three runs share the device: how long an update takes in each
precision is said by `rates.py --precision`. Goes on where it stopped; writes `results/precision/TASK/`: a line per run
(`runs.csv`), the curves (`curves.csv`), and a table (`README.md`).
"""

import argparse
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import study
import torch
from command import command

from echelon.config import ALGORITHMS, TrainConfig
from echelon.config.checks import require_device
from echelon.presets import preset
from echelon.runs.folder import RunFolder
from echelon.runs.metrics import read_metrics

COLUMNS = ["return/leader", "loss/critic", "kl/rate", "lr"]
PRECISIONS = ("tf32", "fp32", "bf16")
THRESHOLDS = {"Hopper": 1000.0, "CartpoleSwingup": 140.0}
"""Returns that a run of the preset passes on its way: about five sixths of where it ends."""
WINDOW = 5
"""Iterations over which the return is averaged before it is compared."""
WORKERS = 3


@dataclass(frozen=True)
class Figures:
    """What a run adds to its line."""

    threshold: float

    def __call__(self, folder: RunFolder) -> dict[str, Any]:
        steps = steps_to(self.threshold, list(read_metrics(folder)))
        return {"steps_to_threshold": "" if steps is None else steps}


def steps_to(threshold: float, lines: Sequence[dict[str, float]]) -> int | None:
    """Environment steps after which the leader's return, averaged over a window, first reached the threshold."""
    known = [line for line in lines if not math.isnan(line["return/leader"])]
    for end in range(WINDOW, len(known) + 1):
        window = known[end - WINDOW : end]
        if statistics.mean(line["return/leader"] for line in window) >= threshold:
            return int(window[-1]["env_steps"])
    return None


def methods(base: TrainConfig) -> dict[str, TrainConfig]:
    """The precisions of a device."""
    names: Sequence[Any] = PRECISIONS if base.device == "cuda" else ("fp32",)
    return {name: replace(base, precision=name) for name in names}


def page(rows: Sequence[dict[str, str]], base: TrainConfig, where: str) -> str:
    """A line per precision."""
    steps = base.num_iterations * base.num_envs * base.update.horizon
    lines = [
        f"# Precision of matrix products, {base.task}",
        "",
        f"`python benchmarks/precision.py --task {base.task}` on {where}:",
        f"{base.algo.upper()}, {base.num_policies} policies, {base.num_envs} environments, {steps / 1e6:.2f} M steps.",
        "Return: the leader's, with exploration noise, mean over the last quarter of training.",
        f"Steps: until that return, averaged over {WINDOW} iterations, first reached {THRESHOLDS[base.task]:g}.",
        "",
        "| precision | return, by seed | mean ± deviation | M steps to threshold, by seed |",
        "|---|---|---|---|",
    ]
    for name in dict.fromkeys(row["method"] for row in rows):
        mine = sorted((row for row in rows if row["method"] == name), key=lambda row: int(row["seed"]))
        returns = [float(row["final_return/leader"] or "nan") for row in mine]
        reached = [row["steps_to_threshold"] for row in mine]
        spread = statistics.stdev(returns) if len(returns) > 1 else 0.0
        cells = (
            ", ".join(f"{value:.4g}" for value in returns),
            f"{statistics.mean(returns):.4g} ± {spread:.2g}",
            ", ".join(f"{int(value) / 1e6:.2f}" if value else "never" for value in reached),
        )
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def machine(device: str) -> str:
    """Where the figures come from."""
    gpu = f"one {torch.cuda.get_device_name()}, torch {torch.__version__}, " if device == "cuda" else ""
    return gpu + study.machine()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=THRESHOLDS, default="Hopper")
    parser.add_argument("--algo", choices=ALGORITHMS, default="cpo")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--env-steps", type=int, help="of every run; the preset's unless given")
    parser.add_argument("--num-envs", type=int, help="the preset's unless given")
    args = parser.parse_args()
    require_device(args.device)
    base = preset(args.task)
    base = replace(base, algo=args.algo, device=args.device, num_envs=args.num_envs or base.num_envs)
    base = replace(base, env_steps=args.env_steps or base.env_steps)
    name = str(Path("precision") / (args.task if args.device == "cuda" else f"{args.task}-cpu"))
    keep = study.Summary(COLUMNS, Figures(THRESHOLDS[args.task]), episodes=0)
    folder = study.run(name, study.grid(methods(base), range(args.seeds)), keep, workers=WORKERS)
    text = page(study.read(folder / "runs.csv"), base, machine(args.device))
    (folder / "README.md").write_text(text)
    print(text)


if __name__ == "__main__":
    command(main)
