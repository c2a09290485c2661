"""Train a task with its preset for some minutes, or until a figure is reached, and keep every tenth line of metrics.

    python benchmarks/train_until.py AllegroHand --minutes 8 --until successes/leader ">=" 1.6 --out results/learning
    python benchmarks/train_until.py FrankaCubePush --name near -- --env.start-spread 0.1

What follows `--` are flags of `echelon train`. The clock starts with the first environment step. OUT/TASK gets the
run's settings (`config.json`) and `metrics.csv`; the run itself lies in `--runs`.
"""

import contextlib
import csv
import math
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from command import command, options

from echelon import configure
from echelon.console.view import PlainView
from echelon.runs.folder import RunFolder
from echelon.runs.metrics import read_metrics
from echelon.training.callbacks import Callback, Stop, until
from echelon.training.loop import train


def within(minutes: float) -> Callback:
    """Stop after so many minutes of training."""
    return lambda metrics: Stop(f"{minutes:g} minutes are over") if metrics["wall_s"] >= 60 * minutes else None


def keep(folder: RunFolder, out: Path) -> None:
    """Keep a run's settings, and every tenth line of its metrics with the last."""
    out.mkdir(parents=True, exist_ok=True)
    shutil.copy(folder.path / "config.json", out / "config.json")
    lines = read_metrics(folder)
    lines = [line for line in lines if line["iteration"] % 10 == 1 or line is lines[-1]]
    names = list(dict.fromkeys(name for line in lines for name in line))
    with (out / "metrics.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        for line in lines:
            writer.writerow({name: f"{value:.6g}" for name, value in line.items()})


def first_to_meet(
    lines: Sequence[Mapping[str, float]], metric: str, threshold: float, window: int = 10
) -> Mapping[str, float] | None:
    """The first line at which the metric's mean over a window reaches the threshold; None if it never does."""
    values = [line.get(metric, math.nan) for line in lines]  # NaN before the first episode ends, which reaches nothing
    for end in range(window, len(lines) + 1):
        if sum(values[end - window : end]) / window >= threshold:
            return lines[end - 1]
    return None


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("task")
    parser.add_argument("--algo", default="cpo")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--until", nargs=3, metavar=("METRIC", "RELATION", "VALUE"))
    parser.add_argument("--name", help="folder in OUT; the task's name unless given")
    parser.add_argument("--out", type=Path, default=Path("results/learning"))
    parser.add_argument("--runs", type=Path, default=Path("runs/learning"))
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    args, flags = parser.parse_args(sys.argv[1:end]), sys.argv[end + 1 :]
    callbacks = [within(args.minutes), *([until("".join(args.until))] if args.until else [])]
    name = args.name or args.task
    config = configure(args.task, [f"--algo={args.algo}", f"--seed={args.seed}", *flags])
    with contextlib.suppress(KeyboardInterrupt):
        train(replace(config, out=str(args.runs / name)), PlainView(every=20.0), callbacks=callbacks)
    keep(RunFolder.open(args.runs / name), args.out / name)


if __name__ == "__main__":
    command(main)
