"""The plan in results/evidence/plan.md: its tasks, arms and blocks, and which of its runs the ledger lacks."""

import csv
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from echelon.errors import UserError

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


PLAN = Plan(
    tasks=(
        Task("AllegroHand", 100_000_000, "successes/leader", 1, "successes"),
        Task("Anymal", 60_000_000, "env/tracking_error", 0.3, "tracking_error", more=False),
        Task("AllegroKukaRegrasping", 100_000_000, "return/leader", 150, "held"),
        Task(
            "AllegroKukaTwoArmsReorientation",
            120_000_000,
            "lifted/leader",
            0.5,
            "lifted",
        ),
        Task("ShadowHand", 200_000_000, "successes/leader", 1, "successes"),
        Task("FrankaCubeStack", 150_000_000, "lifted/leader", 0.05, "lifted"),
    ),
    arms={
        "ppo": ("--algo", "ppo", "--preset", "paper"),
        "ppo_x4": ("--variant", "ppo_x4"),
        "pbt": ("--variant", "pbt_short"),
        "sapg": ("--algo", "sapg", "--preset", "paper"),
        "sapg_cpo_steps": ("--variant", "sapg_cpo_steps"),
        "cpo": ("--algo", "cpo", "--preset", "paper"),
        "cpo_centred": ("--variant", "cpo_centred"),
        "new": (  # SAPG whose leader borrows everything, with ppo_x4's optimizer steps
            *("--variant", "ppo_x4", "--algo", "sapg", "--ensemble.borrow-from", "all", "--ensemble.estimator", "gae"),
            *("--update.kl-rows", "own", "--ensemble.advantage-scope", "centred"),
        ),
    },
    comparisons=(
        ("new", "ppo_x4"),
        ("cpo_centred", "ppo_x4"),
        ("cpo_centred", "cpo"),
        ("cpo_centred", "sapg_cpo_steps"),
        ("cpo", "sapg_cpo_steps"),
    ),
)
