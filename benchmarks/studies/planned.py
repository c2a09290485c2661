"""A plan of runs in blocks, its ledger, and what is kept of a run.

A block is one task with one seed and all arms. `ledger.csv` has a line for every run that ended, never changed.
"""

import csv
import json
import math
import random
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from command import Row
from studies.running import Rows, machine, read

from echelon.commands.train import configure
from echelon.errors import UserError
from echelon.evaluation.evaluate import evaluate
from echelon.grid import Cell
from echelon.runs.folder import RunFolder
from echelon.runs.metrics import read_metrics

Line = Mapping[str, float]
"""Metrics of an iteration."""
WINDOW = 10
"""Iterations over whose mean a threshold is met."""
KEPT = """
    successes/leader return/leader ess kl/own kl/rate lr sigma/policy_0 pull/weight adversary/accuracy
    clip_fraction/leader_borrows kl/follower_to_leader successes/policy_1 successes/policy_2 successes/policy_3
    successes/policy_4 successes/policy_5 env/reward/success
""".split()  # noqa: SIM905


@dataclass(frozen=True)
class Task:
    """A task of the plan and what counts on it."""

    name: str
    cap: int
    """Environment steps of a run."""
    metric: str
    threshold: float
    evaluated: str
    """The score's name in an evaluation."""
    more: bool = True
    """Whether more is better."""
    rate_of: str = ""
    """The task in results/speed whose rate stands for this one's, if that is another."""


@dataclass(frozen=True)
class Plan:
    tasks: Sequence[Task]
    arms: Mapping[str, Sequence[str]]
    """Flags of `echelon train`."""
    comparisons: Sequence[tuple[str, str]] = ()
    seeds: Sequence[int] = (101, 102, 103)
    flags: Sequence[str] = ("--device", "cuda", "--num-envs", "24576")
    episodes: int = 1024
    """Of the evaluation at the cap."""
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

    def left(self, ledger: Rows) -> Iterator[tuple[Task, int, list[str]]]:
        """Unfinished blocks with the arms they still need; a run that ended twice without success needs no more."""
        for task, seed in self.blocks():
            arms = [arm for arm in self.order(task, seed) if not over(tries(ledger, task, seed, arm))]
            if arms:
                yield task, seed, arms


def first_to_meet(
    lines: Sequence[Line], metric: str, threshold: float, more: bool = True, window: int = WINDOW
) -> Line | None:
    """The first line at which the metric's mean over a window meets the threshold; None if it never does."""
    values = [line.get(metric, math.nan) for line in lines]  # NaN before the first episode ends, which meets nothing
    for end in range(window, len(lines) + 1):
        mean = sum(values[end - window : end]) / window
        if mean >= threshold if more else mean <= threshold:
            return lines[end - 1]
    return None


def thin(lines: Sequence[Line]) -> list[Line]:
    """Every tenth of a run's lines of metrics, and the last."""
    return [line for line in lines if line["iteration"] % 10 == 1 or line is lines[-1]]


def tries(ledger: Rows, task: Task, seed: int, arm: str) -> Rows:
    return [row for row in ledger if (row["task"], row["seed"], row["arm"]) == (task.name, str(seed), arm)]


def over(lines: Rows) -> bool:
    """Whether a run with these lines in the ledger is not to be trained again."""
    return len(lines) > 1 or any(line["status"] == "done" for line in lines)


def read_ledger(results: Path) -> Rows:
    if not (results / "ledger.csv").exists():
        raise UserError(f"{results} has no ledger.csv; a new one is the first line of results/evidence/ledger.csv")
    return read(results / "ledger.csv")


def make_cell(plan: Plan, task: Task, seed: int, arm: str, ledger: Rows, runs: Path) -> Cell:
    """A run that failed is repeated in a folder of its own."""
    name = f"{task.name}-{arm}-s{seed}" + ("-again" if tries(ledger, task, seed, arm) else "")
    flags = [*(plan.arms[arm] or ()), "--seed", str(seed), "--env-steps", str(task.cap), *plan.flags]
    return Cell(name, replace(configure(task.name, flags), out=str(runs / name)))


@dataclass(frozen=True)
class Keeper:
    """Keeps what a run leaves: its line in the ledger, every tenth line of its metrics, its settings."""

    plan: Plan
    results: Path
    revision: str
    workers: int

    def keep(self, task: Task, seed: int, arm: str, cell: Cell, failure: str | None = None) -> None:
        lines = read_metrics(cell.path) if (cell.path / "metrics.jsonl").exists() else []
        if not failure and not any(task.metric in line for line in lines):
            raise UserError(f"{cell.path} has no metric {task.metric}, by which the plan scores {task.name}")
        met = first_to_meet(lines, task.metric, task.threshold, task.more) or {}
        last = lines[-1] if lines else {}
        recent = [line.get(task.metric, math.nan) for line in lines[-WINDOW:]]
        document = json.loads((cell.path / "config.json").read_text()) if (cell.path / "config.json").exists() else {}
        ledger = read_ledger(self.results)
        row: Row = {
            "task": task.name,
            "seed": seed,
            "arm": arm,
            "order": self.plan.order(task, seed).index(arm) + 1,
            "revision": self.revision,
            "machine": machine(cell.config.device),
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
            "note": "; ".join(self._notes(ledger, task, seed, arm, document, failure)),
        }
        if not failure:
            found = evaluate(RunFolder.open(cell.path), num_envs=self.plan.episodes, device=cell.config.device)
            leader = next(s for s in found.scores if s.policy == found.leader and s.mode == "deterministic")
            row |= {"evaluated_score": leader.extra[task.evaluated], "evaluated_episodes": leader.episodes}
        method = arm + ("-again" if cell.name.endswith("-again") else "")
        self._keep_curve(task, {"method": method, "seed": str(seed)}, lines)
        if document:
            (self.results / "settings").mkdir(exist_ok=True)
            shutil.copy(cell.path / "config.json", self.results / "settings" / f"{cell.name}.json")
        with (self.results / "ledger.csv").open("r+", newline="") as file:  # last: a line says that all is there
            header = file.readline().strip().split(",")
            file.seek(0, 2)
            writer = csv.DictWriter(file, header, lineterminator="\n")
            writer.writerow({name: short(value) for name, value in row.items()})

    def _notes(
        self, ledger: Rows, task: Task, seed: int, arm: str, document: Row, failure: str | None
    ) -> Iterator[str]:
        """What a reader must know of a run, also where it was not as the plan wants it."""
        if failure:
            yield " ".join(failure.split())
        if tries(ledger, task, seed, arm):
            yield "again after a failure"
        if self.workers > 1:
            yield f"{self.workers} runs at a time"
        if len(document.get("sessions", ())) > 1:
            yield f"in {len(document['sessions'])} sessions"
        block = [row for row in ledger if (row["task"], row["seed"]) == (task.name, str(seed))]
        if block and block[0]["revision"] != self.revision:
            yield f"block begun at {block[0]['revision']}"

    def _keep_curve(self, task: Task, key: dict[str, str], lines: Sequence[Line]) -> None:
        """In the file of the task, in place of what an interrupted attempt to keep the same run left there."""
        path, names = self.results / f"{task.name}.csv", list(dict.fromkeys([*KEPT, task.metric]))
        rows: list[Row] = [row for row in read(path) if (row["method"], row["seed"]) != tuple(key.values())]
        for line in thin(lines):
            rows.append(key | {name: short(line.get(name, "")) for name in ("iteration", "env_steps", *names)})
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, ["method", "seed", "iteration", "env_steps", *names], lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


def short(value: object) -> object:
    """A number as it is written down; nothing where nothing was measured."""
    if not isinstance(value, float):
        return value
    return "" if math.isnan(value) else int(value) if value.is_integer() else f"{value:.6g}"
