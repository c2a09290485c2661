"""Work off a plan of trainings on one GPU, some at a time: what a study's `run.py` or `hands.py` calls with its plan.

    PYTHONPATH=benchmarks python results/evidence/run.py --minutes 25 --together 3
    PYTHONPATH=benchmarks python results/evidence/run.py --table

Each run is trained in legs and scored after each by `echelon evaluate`, on new episodes of the task's own starts. A leg
that ends appends a line to ledger.jsonl and leaves every tenth line of metrics in a folder of its own, beside the
script; a leg in the ledger is not repeated. No leg is started that would not end in time. One that takes longer than
was thought is stopped, and as one that fails it leaves its metrics in a folder `-stopped`; the other runs go on. On a
machine that keeps its files, a run that was cut continues; on another it starts again.
"""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
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
    evaluate_every: int | None = None
    """Iterations between evaluations in training; unset, as often as costs little."""

    def needs(self, leg: int, begun: bool) -> float:
        """Seconds to the end of a leg. Unless the run has begun here, it is trained from its start."""
        return self.seconds * (1 if begun else 1 + self.legs.index(leg))


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
        """What is known, by seed."""
        path = self.folder / "ledger.jsonl"
        return sorted(read_lines(path), key=lambda line: line["seed"]) if path.exists() else []

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
        self.waiting, self.together = [run for run in self.plan.runs if run[0] in arms], together
        workers = [threading.Thread(target=self._work) for _ in range(together)]
        for worker in workers:
            worker.start()
        try:
            for worker in workers:
                worker.join()
        finally:
            self.until = 0.0  # if this was interrupted, so are the runs

    def _work(self) -> None:
        while (run := self._next()) is not None:
            try:
                self._train(*run)
            except Exception as error:  # the other runs go on
                name, log = self._name(*run), self._log(self._name(*run))
                ends = log.read_text(errors="replace").splitlines()[-20:] if log.exists() else ()
                print(f"{name}: {error!r}", *ends, sep="\n", file=sys.stderr, flush=True)
                with suppress(Exception):  # nothing to keep, or not enough for answers
                    print(f"{name}: {self._keep(name, f'{name}-stopped')}", flush=True)

    def _next(self) -> tuple[str, int] | None:
        """The next run of which a leg ends in time."""
        with self.lock:
            found = next((run for run in self.waiting if self._leg(*run)), None)
            if found:
                self.waiting.remove(found)
            return found

    def _name(self, arm: str, seed: int) -> str:
        return f"{self.plan.arms[arm].task}-{arm}-s{seed}"

    def _log(self, name: str) -> Path:
        return self.runs / f"{name}.log"

    def _leg(self, arm: str, seed: int) -> int | None:
        """The first missing leg of a run, if it ends in time."""
        leg = next(iter(self.plan.missing(arm, seed)), None)
        begun, left = (self.runs / self._name(arm, seed)).exists(), self.until - time.monotonic()
        return leg if leg and self.plan.arms[arm].needs(leg, begun) < left else None

    def _train(self, arm: str, seed: int) -> None:
        """Train the missing legs of a run, as far as there is time."""
        plan, chosen, name = self.plan, self.plan.arms[arm], self._name(arm, seed)
        path = self.runs / name
        while leg := self._leg(arm, seed):
            ends = ["--seed", str(seed), "--env-steps", str(leg), "--out", str(path)]
            if chosen.evaluate_every is not None:
                ends += ["--evaluate-every", str(chosen.evaluate_every)]
            self._echelon(name, "train", chosen.task, *chosen.flags, *ends)
            self._echelon(name, "evaluate", str(path), "--num-envs", str(plan.episodes))
            found = read_evaluation(path)
            assert found is not None
            best = next(s for s in found.scores if (s.policy, s.mode) == (found.leader, "deterministic"))
            scores = {"return": best.return_mean, "terminated": best.terminated, **best.extra}
            line = {"arm": arm, "seed": seed, "leg": leg, "revision": git_revision(), "together": self.together}
            line |= scores | self._keep(name, name)
            with self.lock:
                append(plan.folder / "ledger.jsonl", [line])

    def _keep(self, name: str, place: str) -> Row:
        """Keep a run's metrics in the study's folder; what the study notes of it."""
        folder, kept = RunFolder.open(self.runs / name), self.plan.folder / place
        keep(folder, kept)
        return self.plan.answers(folder, kept)

    def _echelon(self, name: str, *words: str) -> None:
        """Run a command; when time is up, stop it, which has a run saved."""
        order = [sys.executable, "-m", "echelon", *words]
        with self._log(name).open("a") as log:
            child = subprocess.Popen(order, stdout=log, stderr=log)
        while child.poll() is None and time.monotonic() < self.until:
            time.sleep(0.1)
        if child.poll() is None:
            child.terminate()
            try:
                child.wait(timeout=60)
            finally:
                child.kill()
            raise TimeoutError("its time was up")
        if child.returncode:
            raise subprocess.CalledProcessError(child.returncode, order)


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
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C, so that no run is left behind
        Work(plan, args.out, args.minutes).do(args.arms, args.together)
    print(table(plan))
