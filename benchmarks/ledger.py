"""Work off a plan of trainings on one GPU, some at a time: what a study's `run.py` or `hands.py` calls with its plan.

    PYTHONPATH=benchmarks python results/evidence/run.py --minutes 25 --together 3
    PYTHONPATH=benchmarks python results/evidence/run.py --table

Each run is trained in legs and scored after each by `echelon evaluate`, on new episodes of the task's own starts. A leg
that ends appends a line to ledger.jsonl and leaves every tenth line of metrics in a folder of its own, beside the
script; a leg in the ledger is not repeated. No leg is started that would not end in time. On a machine that keeps its
files, a run that was cut continues; on another it starts again.
"""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from command import Row, append, options, read_lines
from train_until import keep

from echelon.errors import UserError
from echelon.runs.evaluations import read_evaluation
from echelon.runs.folder import RunFolder, git_revision


@dataclass(frozen=True)
class Arm:
    """One way to train a task."""

    task: str
    flags: tuple[str, ...]
    legs: tuple[int, ...]
    """Environment steps after which it is scored; at the last it ends."""
    seconds: float
    """About how long a leg takes on an H200, beside others."""


@dataclass(frozen=True)
class Plan:
    """What a study trains, and where its answers go."""

    folder: Path
    arms: dict[str, Arm]
    runs: tuple[tuple[str, int], ...]
    """Arm and seed of each run, in the order in which they are trained."""
    answers: Callable[[RunFolder, Path], Row]
    """What the study notes of a run at the end of a leg; it may leave files in the second folder."""
    episodes: int = 1024

    def lines(self) -> list[Row]:
        """What is known."""
        path = self.folder / "ledger.jsonl"
        return read_lines(path) if path.exists() else []

    def missing(self, arm: str, seed: int) -> list[int]:
        """Legs of a run that are not known."""
        known = {line["leg"] for line in self.lines() if (line["arm"], line["seed"]) == (arm, seed)}
        return [leg for leg in self.arms[arm].legs if leg not in known]


class Work:
    """Trains what a plan lacks until a time, each run in a process of its own."""

    def __init__(self, plan: Plan, runs: Path, minutes: float) -> None:
        self.plan, self.runs, self.until, self.lock = plan, runs, time.monotonic() + 60 * minutes, threading.Lock()
        runs.mkdir(parents=True, exist_ok=True)

    def do(self, arms: Sequence[str], together: int) -> None:
        """Train the runs of some arms, `together` at a time."""
        self.waiting = [run for run in self.plan.runs if run[0] in arms and self.plan.missing(*run)]
        workers = [threading.Thread(target=self._work) for _ in range(together)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    def _work(self) -> None:
        while (run := self._next()) is not None:
            try:
                self._train(*run)
            except subprocess.CalledProcessError as error:
                print(f"{run}: exit code {error.returncode}", file=sys.stderr, flush=True)

    def _next(self) -> tuple[str, int] | None:
        """The next run whose first leg ends in time."""
        with self.lock:
            found = next((run for run in self.waiting if self._in_time(run[0])), None)
            if found:
                self.waiting.remove(found)
            return found

    def _in_time(self, arm: str) -> bool:
        return time.monotonic() + self.plan.arms[arm].seconds < self.until

    def _train(self, arm: str, seed: int) -> None:
        """Train the missing legs of a run, as far as there is time."""
        plan, chosen = self.plan, self.plan.arms[arm]
        name = f"{chosen.task}-{arm}-s{seed}"
        path, kept = self.runs / name, plan.folder / name
        for leg in plan.missing(arm, seed):
            if not self._in_time(arm):
                return
            words = [
                "train",
                chosen.task,
                *chosen.flags,
                "--seed",
                str(seed),
                "--env-steps",
                str(leg),
                "--out",
                str(path),
            ]
            for order in (words, ["evaluate", str(path), "--num-envs", str(plan.episodes)]):
                with path.with_name(f"{name}.log").open("a") as log:
                    subprocess.run([sys.executable, "-m", "echelon", *order], stdout=log, stderr=log, check=True)
            folder = RunFolder.open(path)
            found = read_evaluation(path)
            assert found is not None
            best = next(s for s in found.scores if (s.policy, s.mode) == (found.leader, "deterministic"))
            scores = {"return": best.return_mean, "terminated": best.terminated, **best.extra}
            with self.lock:
                keep(folder, kept)
                answers = plan.answers(folder, kept)
                line = {"arm": arm, "seed": seed, "leg": leg, "revision": git_revision(), **scores, **answers}
                append(plan.folder / "ledger.jsonl", [line])


def command_line(plan: Plan, table: Callable[[Plan], str], doc: str | None) -> None:
    """Train what a plan lacks, and print what is known."""
    parser = options(doc)
    parser.add_argument("--table", action="store_true", help="print what is known instead of training")
    parser.add_argument("--arms", nargs="+", choices=plan.arms, default=list(plan.arms), help="all by default")
    parser.add_argument("--minutes", type=float, default=25)
    parser.add_argument("--together", type=int, default=3, help="trainings at a time; CUDA's MPS lets them share")
    parser.add_argument("--out", type=Path, default=Path("runs") / plan.folder.name, help="for run folders")
    args = parser.parse_args()
    if not args.table:
        import torch

        if not torch.cuda.is_available():
            raise UserError("the plan's runs need a CUDA GPU, and torch sees none")
        Work(plan, args.out, args.minutes).do(args.arms, args.together)
    print(table(plan))
