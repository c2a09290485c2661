"""Train a task with its preset for some minutes, or until a figure is reached, and keep every tenth line of metrics.

    python benchmarks/train_until.py AllegroHand --minutes 8 --until successes/leader ">=" 1.6 --out results/learning
    python benchmarks/train_until.py FrankaCubePush --name near -- --env.start-spread 0.1

What follows `--` are flags of `echelon train`. The clock starts with the first environment step. OUT/TASK gets the
run's settings (`config.json`) and `metrics.csv`; the run itself lies in `--runs`.
"""

import contextlib
import csv
import dataclasses
import math
import operator
import shutil
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from command import command, options

from echelon.commands.train import configure
from echelon.config import TrainConfig
from echelon.console.view import PlainView
from echelon.errors import UserError, nearest
from echelon.runs.folder import RunFolder
from echelon.runs.metrics import read_metrics
from echelon.training.loop import train

THIN = 10
"""Iterations between two kept lines."""
COMPARE = {">=": operator.ge, "<=": operator.le}


@dataclasses.dataclass(frozen=True)
class Aim:
    """A figure that ends a run."""

    metric: str
    relation: str
    value: float

    @classmethod
    def read(cls, words: list[str]) -> "Aim":
        """What `--until` was given."""
        metric, relation, value = words
        if relation not in COMPARE:
            raise UserError(f"--until {metric} takes {' or '.join(COMPARE)}, in quotes, not {relation!r}")
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise UserError(f"--until {metric} {relation} takes a number, not {value!r}")
        return cls(metric, relation, number)

    def reached(self, metrics: Mapping[str, float]) -> bool:
        return COMPARE[self.relation](metrics.get(self.metric, math.nan), self.value)


class Deadline(PlainView):
    """Interrupts the run, which then saves itself, when its time is up or its aim is reached."""

    def __init__(self, minutes: float, until: Aim | None) -> None:
        super().__init__(every=20.0)
        self._seconds, self._until = 60 * minutes, until
        self._known: set[str] = set()
        """Names of metrics this run has had."""

    def start(self, config: TrainConfig, folder: RunFolder, total_iterations: int, first_iteration: int) -> None:
        super().start(config, folder, total_iterations, first_iteration)
        # The first iteration has every name. Diagnostics have none in most others, where a run may be resumed.
        self._known = {name for line in read_metrics(folder) for name in line}

    def update(self, metrics: Mapping[str, float]) -> None:
        super().update(metrics)
        self._known |= metrics.keys()
        aim = self._until
        if aim is not None and aim.metric not in self._known:
            raise UserError(f"--until {aim.metric} is no metric of this run{nearest(aim.metric, self._known)}")
        if metrics["wall_s"] >= self._seconds or (aim is not None and aim.reached(metrics)):
            signal.raise_signal(signal.SIGINT)


def keep(folder: RunFolder, out: Path) -> None:
    """Settings and thinned metrics of a run."""
    out.mkdir(parents=True, exist_ok=True)
    shutil.copy(folder.path / "config.json", out / "config.json")
    lines = list(read_metrics(folder))
    lines = [line for line in lines if line["iteration"] % THIN == 1 or line is lines[-1]]
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
    given = sys.argv[1:]
    end = given.index("--") if "--" in given else len(given)
    own, flags = given[:end], given[end + 1 :]
    args = parser.parse_args(own)
    until = Aim.read(args.until) if args.until else None
    name = args.name or args.task
    config = configure(args.task, [f"--algo={args.algo}", f"--seed={args.seed}", *flags])
    config = dataclasses.replace(config, out=str(args.runs / name))
    with contextlib.suppress(KeyboardInterrupt):
        train(config, Deadline(args.minutes, until))
    keep(RunFolder.open(args.runs / name), args.out / name)


if __name__ == "__main__":
    command(main)
