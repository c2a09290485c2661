"""Train a task with its preset for some minutes, or until a figure is reached, and keep every tenth line of metrics.

    python benchmarks/train_until.py AllegroHand --minutes 8 --until successes/leader ">=" 1.6 --out results/learning
    python benchmarks/train_until.py FrankaCubePush --name near -- --env.start-spread 0.1

What follows `--` are flags of `echelon train`. The clock starts with the first environment step. OUT/TASK gets the
run's settings (`config.json`) and `metrics.csv`; the run itself lies in `--runs`.
"""

import contextlib
import csv
import math
import operator
import shutil
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from command import command, options
from studies.planned import thin

from echelon.commands.train import configure
from echelon.config import TrainConfig
from echelon.console.view import PlainView
from echelon.errors import UserError, nearest
from echelon.runs.folder import RunFolder
from echelon.runs.metrics import read_metrics
from echelon.training.loop import train

COMPARE = {">=": operator.ge, "<=": operator.le}


@dataclass(frozen=True)
class Aim:
    """A figure that ends a run."""

    metric: str
    relation: str
    value: float

    @classmethod
    def read(cls, metric: str, relation: str, value: str) -> "Aim":
        """What `--until` was given."""
        if relation not in COMPARE:
            raise UserError(f"--until {metric} takes {' or '.join(COMPARE)}, in quotes, not {relation!r}")
        with contextlib.suppress(ValueError):
            if math.isfinite(float(value)):
                return cls(metric, relation, float(value))
        raise UserError(f"--until {metric} {relation} takes a number, not {value!r}")

    def reached(self, metrics: Mapping[str, float]) -> bool:
        return COMPARE[self.relation](metrics.get(self.metric, math.nan), self.value)


class Deadline(PlainView):
    """Interrupts the run, which then saves itself, when its time is up or its aim is reached."""

    def __init__(self, minutes: float, aim: Aim | None) -> None:
        super().__init__(every=20.0)
        self._seconds, self._aim = 60 * minutes, aim
        self._known: set[str] = set()
        """Names of metrics this run has had."""

    def start(self, config: TrainConfig, folder: RunFolder, total_iterations: int, first_iteration: int) -> None:
        super().start(config, folder, total_iterations, first_iteration)
        # The first iteration has every name. Diagnostics have none in most others, where a run may be resumed.
        self._known = {name for line in read_metrics(folder) for name in line}

    def update(self, metrics: Mapping[str, float]) -> None:
        super().update(metrics)
        self._known |= metrics.keys()
        if self._aim and self._aim.metric not in self._known:
            metric = self._aim.metric
            raise UserError(f"--until {metric} is no metric of this run{nearest(metric, self._known)}")
        if metrics["wall_s"] >= self._seconds or (self._aim and self._aim.reached(metrics)):
            signal.raise_signal(signal.SIGINT)


def keep(folder: RunFolder, out: Path) -> None:
    """Settings and thinned metrics of a run."""
    out.mkdir(parents=True, exist_ok=True)
    shutil.copy(folder.path / "config.json", out / "config.json")
    lines = thin(read_metrics(folder))
    names = list(dict.fromkeys(name for line in lines for name in line))
    with (out / "metrics.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        for line in lines:
            writer.writerow({name: f"{value:.6g}" for name, value in line.items()})


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
    aim = Aim.read(*args.until) if args.until else None
    name = args.name or args.task
    config = configure(args.task, [f"--algo={args.algo}", f"--seed={args.seed}", *flags])
    with contextlib.suppress(KeyboardInterrupt):
        train(replace(config, out=str(args.runs / name)), Deadline(args.minutes, aim))
    keep(RunFolder.open(args.runs / name), args.out / name)


if __name__ == "__main__":
    command(main)
