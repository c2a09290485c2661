"""Work off a plan of runs: every run once, in the plan's order, on whatever machine there is.

    python benchmarks/evidence.py next --minutes 8                  # resumes where it stopped
    python benchmarks/evidence.py next --minutes 8 --carry carried  # on a machine that does not keep its files
    python benchmarks/evidence.py status                            # what is done and what is next
    PYTHONPATH=benchmarks python results/evidence/table.py          # what is known so far, with the plan's tests

The plan is `plan.py` in `--results`, by default results/evidence. Each run is `echelon train` in a process of its own,
one at a time. A run that ends appends a line to `ledger.csv` in `--results` and leaves its settings and every tenth
line of its metrics there, in its own folder. A run in the ledger is not repeated, except one that failed once. When the
time is up, the run in progress saves itself, which may take a minute more, as may an evaluation. `--carry` packs the
unfinished run into a file of that folder, and unpacks at the start what an earlier machine packed.
"""

import csv
import json
import math
import random
import runpy
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from command import Row, command, options
from train_until import keep

from echelon import RunFolder, evaluate, read_metrics
from echelon.errors import UserError
from echelon.runs.folder import describe_session, git_revision

ROOT = Path(__file__).parents[1]
WINDOW = 10
"""Iterations over whose mean a threshold is met."""


Rows = list[dict[str, str]]
"""Lines of a CSV file."""


@dataclass(frozen=True)
class Task:
    """A task of the plan and how it is scored."""

    name: str
    cap: int
    """Environment steps of a run."""
    metric: str
    threshold: float
    evaluated: str
    """The score's name in an evaluation."""
    more: bool = True
    """Whether more is better."""


@dataclass(frozen=True)
class Plan:
    tasks: Sequence[Task]
    arms: Mapping[str, Sequence[str]]
    """Flags of `echelon train`."""
    comparisons: Sequence[tuple[str, str]] = ()
    seeds: Sequence[int] = (101, 102, 103)
    flags: Sequence[str] = ("--device", "cuda", "--num-envs", "24576")
    episodes: int = 1024
    """Episodes of the evaluation at the cap."""
    chosen_on: str = "AllegroHand"
    """The task that settings were chosen on; results are also given without it."""

    def blocks(self) -> list[tuple[Task, int]]:
        """All tasks with the first seed, then all with the next."""
        return [(task, seed) for seed in self.seeds for task in self.tasks]

    def order(self, task: Task, seed: int) -> list[str]:
        """The arms of a block, shuffled."""
        arms = list(self.arms)
        random.Random(f"{task.name}/{seed}").shuffle(arms)
        return arms

    def left(self, ledger: Rows) -> Iterator[tuple[Task, int, str]]:
        """The runs that the ledger lacks, in the plan's order."""
        for task, seed in self.blocks():
            for arm in self.order(task, seed):
                if not over(tries(ledger, task, seed, arm)):
                    yield task, seed, arm

    def command(self, task: Task, seed: int, arm: str) -> list[str]:
        """The arguments of `echelon train`."""
        return [task.name, *self.arms[arm], "--seed", str(seed), "--env-steps", str(task.cap), *self.flags]


def tries(ledger: Rows, task: Task, seed: int, arm: str) -> Rows:
    return [row for row in ledger if (row["task"], row["seed"], row["arm"]) == (task.name, str(seed), arm)]


def over(lines: Rows) -> bool:
    """Whether a run with these lines in the ledger is not to be trained again: it is done, or failed twice."""
    return len(lines) > 1 or any(line["status"] == "done" for line in lines)


def run_name(task: Task, seed: int, arm: str, ledger: Rows) -> str:
    """A run that failed is repeated in a folder of its own."""
    return f"{task.name}-{arm}-s{seed}" + ("-again" if tries(ledger, task, seed, arm) else "")


def read_ledger(results: Path) -> Rows:
    path = results / "ledger.csv"
    if not path.exists():
        raise UserError(f"{results} has no ledger.csv; a new one is the first line of results/evidence/ledger.csv")
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


class TimeIsUp(Exception):
    """The run in progress was asked to save itself."""


@dataclass(frozen=True)
class Sitting:
    """Some minutes on one machine."""

    plan: Plan
    runs: Path
    results: Path
    revision: str
    until: float
    """By `time.monotonic()`."""

    def train_all(self) -> None:
        """Train run after run until the time is up or the ledger is full."""
        while missing := next(self.plan.left(read_ledger(self.results)), None):
            self.train(*missing)
        print("every run of the plan is in the ledger")

    def train(self, task: Task, seed: int, arm: str) -> None:
        """Train or resume one run and keep what it leaves."""
        path = self.runs / run_name(task, seed, arm, read_ledger(self.results))
        if time.monotonic() >= self.until:
            raise TimeIsUp
        print(f"{path.name}{' resumes' if path.exists() else ''}", flush=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        words = [sys.executable, "-m", "echelon", "train", *self.plan.command(task, seed, arm), "--out", str(path)]
        with path.with_name(f"{path.name}.log").open("a+") as log:
            process = subprocess.Popen(words, stdout=log, stderr=log)
            try:
                code = process.wait(max(0.0, self.until - time.monotonic()))
            except (subprocess.TimeoutExpired, KeyboardInterrupt):
                process.send_signal(signal.SIGTERM)
                process.wait()
                raise TimeIsUp from None
            log.seek(0)
            said = log.read().strip().splitlines()[-1:] if code else []
        self.keep(task, seed, arm, path, " ".join([f"exit code {code}:", *said]) if code else None)

    def keep(self, task: Task, seed: int, arm: str, path: Path, failure: str | None = None) -> None:
        """Keep a run's settings and metrics, then its line in the ledger, which says that all is there."""
        lines, document = [], {}
        if (path / "metrics.jsonl").exists():
            lines, document = read_metrics(path), json.loads((path / "config.json").read_text())
            keep(RunFolder.open(path), self.results / path.name)
        if not failure and not any(task.metric in line for line in lines):
            raise UserError(f"{path} has no metric {task.metric}, by which the plan scores {task.name}")
        met = first_to_meet(lines, task.metric, task.threshold, task.more) or {}
        last: Mapping[str, Any] = lines[-1] if lines else {}
        recent = [line.get(task.metric, math.nan) for line in lines[-WINDOW:]]
        row: Row = {
            "task": task.name,
            "seed": seed,
            "arm": arm,
            "order": self.plan.order(task, seed).index(arm) + 1,
            "revision": self.revision,
            "machine": ", ".join(f"{name} {what}" for name, what in describe_session()["hardware"].items() if what),
            "started": document.get("created", ""),
            "finished": datetime.now().astimezone().isoformat(timespec="seconds"),
            "status": "failed" if failure else "done",
            "iterations": last.get("iteration", ""),
            "env_steps": last.get("env_steps", ""),
            "wall_s": last.get("wall_s", ""),
            "optimizer_steps": last.get("gradient_steps", ""),
            "threshold_env_steps": met.get("env_steps", ""),
            "threshold_optimizer_steps": met.get("gradient_steps", ""),
            "threshold_wall_s": met.get("wall_s", ""),
            "training_score": sum(recent) / len(recent) if recent else "",
            "note": "; ".join(self._notes(task, seed, arm, len(document.get("sessions", ())), failure)),
        }
        if not failure:
            found = evaluate(path, num_envs=self.plan.episodes)
            leader = next(s for s in found.scores if s.policy == found.leader and s.mode == "deterministic")
            row |= {"evaluated_score": leader.extra[task.evaluated], "evaluated_episodes": leader.episodes}
        with (self.results / "ledger.csv").open("r+", newline="") as file:
            header = file.readline().strip().split(",")
            file.seek(0, 2)
            csv.DictWriter(file, header, lineterminator="\n").writerow({name: short(x) for name, x in row.items()})

    def _notes(self, task: Task, seed: int, arm: str, sessions: int, failure: str | None) -> list[str]:
        """What a reader must know of a run that was not as the plan wants it."""
        ledger = read_ledger(self.results)
        block = [row["revision"] for row in ledger if (row["task"], row["seed"]) == (task.name, str(seed))]
        notes = [" ".join(failure.split())] if failure else []
        if tries(ledger, task, seed, arm):
            notes.append("again after a failure")
        if sessions > 1:
            notes.append(f"in {sessions} sessions")
        if block and block[0] != self.revision:
            notes.append(f"block begun at {block[0]}")
        return notes


def first_to_meet(
    lines: Sequence[Mapping[str, float]], metric: str, threshold: float, more: bool = True, window: int = WINDOW
) -> Mapping[str, float] | None:
    """The first line at which the metric's mean over a window meets the threshold; None if it never does."""
    values = [line.get(metric, math.nan) for line in lines]  # NaN before the first episode ends, which meets nothing
    for end in range(window, len(lines) + 1):
        mean = sum(values[end - window : end]) / window
        if mean >= threshold if more else mean <= threshold:
            return lines[end - 1]
    return None


def short(value: object) -> object:
    """A number as it is written down; empty where nothing was measured."""
    if not isinstance(value, float):
        return value
    return "" if math.isnan(value) else int(value) if value.is_integer() else f"{value:.6g}"


def pack(runs: Sequence[Path], carry: Path) -> None:
    """Make a file of each of these runs that has a checkpoint, with its newest one; files of other runs are removed."""
    carry.mkdir(parents=True, exist_ok=True)
    for path in carry.glob("*.tar"):
        path.unlink()
    for run in runs:
        saved = [path for path in (run / "checkpoints").glob("*") if path.name.isdigit()]
        if saved:
            newest = max(saved, key=lambda path: int(path.name))
            with tarfile.open(carry / f"{run.name}.tar", "w") as file:
                for path in [*(path for path in run.iterdir() if path.name != "checkpoints"), newest]:
                    file.add(path, path.relative_to(run.parent))


def unpack(carry: Path, runs: Path) -> None:
    """Restore the runs that an earlier machine packed, except those that are here."""
    for path in sorted(carry.glob("*.tar")):
        if not (runs / path.stem).exists():
            try:
                with tarfile.open(path) as file:
                    file.extractall(runs, filter="data")
            except (tarfile.TarError, OSError) as error:
                raise UserError(f"{path} cannot be unpacked ({error}); remove it to train this run again") from None


def status(plan: Plan, ledger: Rows) -> str:
    """What is done and what is next."""
    runs, left = len(plan.blocks()) * len(plan.arms), list(plan.left(ledger))
    steps = sum(task.cap for task, _, _ in left)
    then = f" Next: {run_name(*left[0], ledger)}. {steps / 1e9:.2f} G environment steps are left." if left else ""
    return f"{runs - len(left)} of {runs} runs are done.{then}"


def load(path: Path) -> SimpleNamespace:
    """The names that a script beside a ledger defines."""
    if not path.exists():
        raise UserError(f"there is no {path}")
    return SimpleNamespace(**runpy.run_path(str(path)))


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("what", choices=("next", "status"))
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--out", type=Path, default=Path("runs/evidence"), help="for run folders")
    parser.add_argument(
        "--results", type=Path, default=ROOT / "results" / "evidence", help="has plan.py and ledger.csv"
    )
    parser.add_argument("--carry", type=Path, help="folder for unfinished runs")
    parser.add_argument("--revision", help="of the source, where it is no git checkout")
    args = parser.parse_args()
    ledger, plan = read_ledger(args.results), load(args.results / "plan.py").PLAN
    if args.what == "status":
        print(status(plan, ledger))
        return
    if not args.minutes > 0:
        raise UserError(f"--minutes must be more than 0, not {args.minutes}")
    commit, *changes = (args.revision or git_revision() or "").partition("+")
    if not commit:
        raise UserError("this is no git checkout, so the ledger needs the source's --revision")
    if "cuda" in plan.flags and not torch.cuda.is_available():
        raise UserError("the plan's runs need a CUDA GPU, and torch sees none")
    until = time.monotonic() + 60 * args.minutes
    work(Sitting(plan, args.out, args.results, "".join([commit[:10], *changes]), until), args.carry)


def work(sitting: Sitting, carry: Path | None = None) -> None:
    """Train until the time is up, and carry the unfinished run from machine to machine."""
    if carry is not None:
        unpack(carry, sitting.runs)
    try:
        sitting.train_all()
    except TimeIsUp:
        print("the time is up; the same command resumes")
    finally:
        if carry is not None:
            ledger = read_ledger(sitting.results)
            pack([sitting.runs / run_name(*run, ledger) for run in sitting.plan.left(ledger)], carry)


if __name__ == "__main__":
    command(main)
