"""Work off the plan in results/evidence/plan.md: every run once, in the plan's order, on whatever machine there is.

    python benchmarks/evidence.py next --minutes 8                  # goes on where it stopped
    python benchmarks/evidence.py next --minutes 8 --carry carried  # on a machine that does not keep its files
    python benchmarks/evidence.py status                            # what is done, what is next, GPU minutes left
    python benchmarks/evidence.py table                             # what is known so far, with the plan's tests

A run that ends appends a line to `ledger.csv` in `--results` and leaves there every tenth line of its metrics and its
settings; a run in the ledger is not repeated, but one that failed once is. When the time is up, runs in progress save
themselves, which may take a minute more, as may an evaluation. `--carry` packs every unfinished run into a file of that
folder, and unpacks at the start what an earlier machine packed.
"""

import math
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from command import command, options, read_lines
from studies.carrying import pack, unpack
from studies.paired import table
from studies.planned import Keeper, Plan, Task, make_cell, read_ledger
from studies.running import ROOT, Rows

from echelon.errors import UserError
from echelon.grid import Cell, run
from echelon.grid.progress import GridProgress, PlainGridView
from echelon.runs.machine import git_revision

PLAN = Plan(
    tasks=(
        Task("AllegroHand", 100_000_000, "successes/leader", 1, "successes"),
        Task("Anymal", 60_000_000, "env/tracking_error", 0.3, "tracking_error", more=False),
        Task("AllegroKukaRegrasping", 100_000_000, "return/leader", 150, "held", rate_of="AllegroKukaReorientation"),
        Task(
            "AllegroKukaTwoArmsReorientation",
            120_000_000,
            "lifted/leader",
            0.5,
            "lifted",
            rate_of="AllegroKukaReorientation",
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


class Deadline(PlainGridView):
    """Interrupts the grid, whose runs then save themselves, when the time is up."""

    def __init__(self, until: float, progress: GridProgress) -> None:
        super().__init__(progress)
        self._until = until

    def tick(self) -> None:
        super().tick()
        if time.monotonic() >= self._until:
            raise KeyboardInterrupt


def train_next(plan: Plan, runs: Path, keeper: Keeper, minutes: float, carry: Path | None = None) -> None:
    """Train block after block until the time is up."""
    until = time.monotonic() + 60 * minutes
    if carry is not None:
        unpack(carry, runs)
    try:
        while block := next(plan.left(read_ledger(keeper.results)), None):
            train_block(plan, *block, runs, keeper, until)
        print("every run of the plan is in the ledger")
    except KeyboardInterrupt:
        print("stopped; the same command goes on")
    finally:
        if carry is not None:
            ledger = read_ledger(keeper.results)
            left = [(task, seed, arm) for task, seed, arms in plan.left(ledger) for arm in arms]
            pack([make_cell(plan, *run, ledger, runs) for run in left], carry)


def train_block(
    plan: Plan, task: Task, seed: int, arms: Sequence[str], runs: Path, keeper: Keeper, until: float
) -> None:
    """Train these arms of a block, and keep what each leaves as it ends."""
    ledger = read_ledger(keeper.results)
    cells = {arm: make_cell(plan, task, seed, arm, ledger, runs) for arm in arms}
    names = {cell.name: arm for arm, cell in cells.items()}
    failed: dict[str, str] = {}

    def make_view(progress: GridProgress) -> Deadline:
        nonlocal failed
        failed = progress.failed
        return Deadline(until, progress)

    def finished(cell: Cell) -> None:
        keeper.keep(task, seed, names[cell.name], cell)

    print(f"{task.name}, seed {seed}: {', '.join(arms)}", flush=True)
    try:
        run(list(cells.values()), runs / "logs", workers=keeper.workers, make_view=make_view, finished=finished)
    finally:  # also when the time is up before the others end
        for name, failure in failed.items():
            keeper.keep(task, seed, names[name], cells[names[name]], failure)


def status(plan: Plan, ledger: Rows) -> str:
    """What is done, what is next, and how long the rest takes."""
    rates: dict[str, list[float]] = {}
    for line in read_lines(ROOT / "results" / "speed" / "h200.jsonl"):
        if line["algo"] == "cpo":
            rates.setdefault(line["task"], []).append(line["training"])
    left = list(plan.left(ledger))
    runs = sum(len(plan.order(task, seed)) for task, seed in plan.blocks())
    missing = sum(len(arms) for _, _, arms in left)
    lines = [
        f"{runs - missing} of {runs} runs are done, {len(plan.blocks()) - len(left)} of {len(plan.blocks())} blocks."
    ]
    if left:
        task, seed, arms = left[0]
        lines.append(f"Next: {task.name}, seed {seed}: {', '.join(arms)}.")
    minutes = 0.0
    for task, _, arms in left:
        known = rates.get(task.rate_of or task.name, [math.nan])
        minutes += len(arms) * task.cap / (sum(known) / len(known)) / 60
    lines.append(f"Left: {minutes:.0f} GPU minutes at CPO's rates in results/speed, without compiling and evaluation.")
    return "\n".join(lines)


def main(plan: Plan = PLAN) -> None:
    parser = options(__doc__)
    parser.add_argument("what", choices=("next", "status", "table"))
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--workers", type=int, default=1, help="runs at a time; the plan wants one, so more are noted")
    parser.add_argument("--out", type=Path, default=Path("runs/evidence"), help="for run folders")
    parser.add_argument("--results", type=Path, default=ROOT / "results" / "evidence", help="has ledger.csv")
    parser.add_argument("--carry", type=Path, help="folder for unfinished runs")
    parser.add_argument("--revision", help="of the source, where it is no git checkout")
    args = parser.parse_args()
    ledger = read_ledger(args.results)
    if args.what != "next":
        print(status(plan, ledger) if args.what == "status" else table(plan, ledger))
        return
    for name in ("minutes", "workers"):
        if not getattr(args, name) > 0:
            raise UserError(f"--{name} must be more than 0, not {getattr(args, name)}")
    commit, *changes = (args.revision or git_revision() or "").partition("+")
    if not commit:
        raise UserError("this is no git checkout, so the ledger needs the source's --revision")
    if "cuda" in plan.flags and not torch.cuda.is_available():
        raise UserError("the plan's runs need a CUDA GPU, and torch sees none")
    train_next(
        plan,
        args.out,
        Keeper(plan, args.results, "".join([commit[:10], *changes]), args.workers),
        args.minutes,
        args.carry,
    )


if __name__ == "__main__":
    command(main)
