"""PPO's update beside rsl_rl's, skrl's and rl_games': the same rollout, weights, minibatches, epochs and settings.

    python benchmarks/ppo_update.py [--device cuda] [--json FILE]
    python benchmarks/ppo_update.py --device cpu --num-envs 64 --hidden 32 16 --repeats 3

An update goes from a stored rollout to trained networks: targets, all gradient steps, normalisers, and its metrics read
by the host. Ours is captured as a CUDA graph on CUDA, as in training; the others run as they ship, which is eagerly,
but for rl_games, whose runner compiles its model and sets TF32; it is timed both ways, and rsl_rl, which can, too.

*Equivalence* comes first, in FP32: one gradient step on the rows of the first minibatch, where each library reports
the same surrogate, value and total loss to 1e-4, and then the total loss of the whole update's first step. Ratios are
clipped in some of these rows and values in most, except for skrl: it takes the clipped value loss where PPO's
reference takes the larger one, so it is compared where the clip does not bind. A difference ends the program.

*Timing* is the median of `--repeats` rounds, in each of which every row has a turn, from the same weights. Ratios are
to our update of the same networks, in the same precision and in our default one (rsl_rl and skrl ship in FP32).
Networks are separate for actor and critic, as all have them, and then share their trunk, as we and rl_games do by
default. Every library adapts its learning rate by its own rule and clips its gradients its own way (rsl_rl those of
actor and critic apart), so later steps differ a little.

The peers are optional: rsl-rl-lib, skrl, rl-games. Those that are not installed are named and left out.
"""

import argparse
import contextlib
import importlib
import importlib.metadata
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from command import command, markdown, options
from peers.ours import Ours
from peers.problem import CLIP, Contestant, Problem, Sizes, build, fixed_order, recorded_losses
from speed import wait

from echelon.config.checks import choose_device
from echelon.errors import UserError

TOLERANCE = 1e-4
BINDING, NOT_BINDING = 2.5 * CLIP, 0.5 * CLIP
"""How far old values lie from the critic's at most."""
WARM_UPS = 3
"""As it is, recording, a first replay."""

Maker = Callable[[Problem], Contestant]
PEERS = {"rsl_rl": "rsl-rl-lib", "skrl": "skrl", "rl_games": "rl-games"}
"""Libraries and their packages. `peers/with_NAME.py` has the contestant."""


@dataclass
class Row:
    """One way to update, and how long it took."""

    library: str
    precision: str
    contestant: Contestant
    shared: bool = False
    compiled: bool = False
    seconds: list[float] = field(default_factory=list)

    @property
    def name(self) -> str:
        return called(self.library, self.shared) + ", compiled" * self.compiled

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def called(library: str, shared: bool) -> str:
    return library + ", shared trunk" * shared


def find_peers() -> tuple[dict[str, Any], dict[str, str]]:
    """The contestants' classes of the libraries that are installed, and why the others are missing."""
    found, missing = {}, {}
    for name, package in PEERS.items():
        try:
            found[name] = importlib.import_module(f"peers.with_{name}").Peer
        except ImportError as error:
            missing[name] = f"{error}; its package is {package}"
    return found, missing


def set_precision(precision: str) -> None:
    """By the older of PyTorch's two ways: its compiler, which two peers use, fails after the newer one."""
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")


def one_step(make: Maker, problem: Problem) -> dict[str, float]:
    """The losses of a single gradient step."""
    with fixed_order(problem.sizes, problem.device), recorded_losses() as totals:
        losses = make(problem).update()
    (total,) = totals
    return asdict(losses) | {"total": total.item()}


def check_first_minibatch(
    peers: dict[str, Any], sizes: Sizes, device: torch.device, *, shared: bool = False
) -> dict[str, Any]:
    """Every peer's losses beside ours."""
    set_precision("fp32")
    moves = (BINDING, NOT_BINDING)
    problems = {move: build(sizes, device, move, shared=shared).first_minibatch() for move in moves}
    ours = {move: one_step(Ours, problem) for move, problem in problems.items()}
    rows = sizes.num_envs // sizes.minibatches * sizes.horizon
    print(f"losses of one step on {rows} rows, FP32" + ", shared trunk" * shared)
    found = {}
    for name, make in peers.items():
        move = BINDING if make.clips_values_alike else NOT_BINDING
        theirs = one_step(make, problems[move])
        found[called(name, shared)] = {"echelon": ours[move], name: theirs}
        for side, losses in found[called(name, shared)].items():
            print(f"  {side:<10}" + "".join(f"  {term} {value:+.7f}" for term, value in losses.items()))
        for term, value in theirs.items():
            require_equal(f"{term} loss of the first minibatch", name, value, ours[move][term])
    return found


def require_equal(what: str, name: str, theirs: float, ours: float) -> None:
    if not abs(theirs - ours) <= TOLERANCE:
        sys.exit(f"not equivalent: the {what} is {theirs:.7f} in {name} and {ours:.7f} in echelon")


def make_rows(args: argparse.Namespace, peers: dict[str, Any], problem: Problem) -> list[Row]:
    """Every contestant in every precision."""
    makers: dict[str, Any] = {"echelon": Ours} | peers
    precisions = ("tf32", "fp32") if problem.device.type == "cuda" else ("fp32",)
    rows = [
        Row(name, precision, make(problem), problem.shared) for name, make in makers.items() for precision in precisions
    ]
    if args.compile:
        rows += [
            Row(name, precisions[0], make(problem, compiled=True), problem.shared, compiled=True)
            for name, make in peers.items()
            if make.compiles
        ]
    return rows


def warm_up(rows: list[Row]) -> tuple[list[Row], dict[str, list[float]], dict[str, str]]:
    """The rows that run, the total losses of their first update in FP32, and why the others do not run."""
    running, totals, failed = [], {}, {}
    for row in rows:
        set_precision(row.precision)
        try:
            with recorded_losses() as losses:
                row.contestant.update()
            for _ in range(WARM_UPS - 1):
                row.contestant.restore()
                row.contestant.update()
        except Exception as error:
            if not row.compiled:
                raise
            failed[row.name] = " ".join([type(error).__name__, *str(error).split()])[:300]  # no compiler, say
            continue
        running.append(row)
        if row.precision == "fp32":
            totals[row.name] = [loss.item() for loss in losses]
    return running, totals, failed


def check_first_step(totals: dict[str, list[float]]) -> None:
    """The total loss of the whole update's first step, and for the reader also of its last."""
    print("total loss of the whole update's first and last step, FP32")
    for name, losses in totals.items():
        print(f"  {name:<22} {losses[0]:+.7f}  {losses[-1]:+.7f}")
        ours = totals[called("echelon", "shared" in name)]
        require_equal("total loss of the update's first step", name, losses[0], ours[0])


def time_rows(rows: list[Row], repeats: int, device: torch.device) -> None:
    for _ in range(repeats):
        for row in rows:
            set_precision(row.precision)
            row.contestant.restore()
            wait(device)
            began = time.perf_counter()
            row.contestant.update()
            wait(device)
            row.seconds.append(time.perf_counter() - began)


def report(rows: list[Row]) -> list[dict[str, Any]]:
    """Prints the table; returns it as plain data."""
    base = {(row.shared, row.precision): row.median for row in rows if row.library == "echelon"}
    default, found = rows[0].precision, []
    columns = ("median_ms", "fastest_ms", "slowest_ms", "times_echelon", f"times_echelon_{default}")
    for row in rows:
        values = [1e3 * x for x in (row.median, min(row.seconds), max(row.seconds))]
        values += [row.median / base[row.shared, precision] for precision in (row.precision, default)]
        found.append({"name": row.name, "precision": row.precision} | dict(zip(columns, values, strict=True)))
    cells = ([f"{x:.2f}" if isinstance(x, float) else x for x in row.values()] for row in found)
    print(
        markdown(
            ("one update", "precision", "median, ms", "fastest", "slowest", "/ echelon", f"/ its {default}"), cells
        )
    )
    return found


def machine(device: torch.device) -> dict[str, str]:
    versions = {"torch": torch.__version__, "python": platform.python_version()}
    for package in PEERS.values():
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    return {"device": name} | versions


SIZES = {"num_envs": 24576, "obs": 88, "actions": 16, "horizon": 8, "epochs": 5, "minibatches": 2}


def parse() -> tuple[argparse.Namespace, Sizes]:
    parser = options(__doc__)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu")
    for name, default in SIZES.items():
        parser.add_argument("--" + name.replace("_", "-"), type=int, default=default)
    parser.add_argument("--hidden", type=int, nargs="+", default=[512, 256, 128])
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1, help="torch threads on a CPU, for all")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, help="compiled rows too; default on CUDA")
    parser.add_argument("--json", type=Path, help="write everything found to this file")
    args = parser.parse_args()
    if args.num_envs % args.minibatches:
        raise UserError(f"{args.num_envs} environments do not split into {args.minibatches} equal minibatches")
    choose_device(args.device)
    if args.compile is None:
        args.compile = args.device == "cuda"
    return args, Sizes(hidden=tuple(args.hidden), **{name: getattr(args, name) for name in SIZES})


def main() -> None:
    args, sizes = parse()
    device = torch.device(args.device)
    torch.set_num_threads(args.threads)
    peers, missing = find_peers()
    found: dict[str, Any] = {"machine": machine(device), "sizes": asdict(sizes), "repeats": args.repeats}
    print("\n".join(f"{part}: {values}" for part, values in found.items()))
    sharing = {name: make for name, make in peers.items() if make.shares}
    found["equivalence"] = check_first_minibatch(peers, sizes, device)
    found["equivalence"] |= check_first_minibatch(sharing, sizes, device, shared=True)
    problems = {shared: build(sizes, device, NOT_BINDING, shared=shared) for shared in (False, True)}
    with fixed_order(sizes, device):
        rows = [*make_rows(args, peers, problems[False]), *make_rows(args, sharing, problems[True])]
        rows, found["total_losses"], failed = warm_up(rows)
        check_first_step(found["total_losses"])
        time_rows(rows, args.repeats, device)
    found["updates"], found["missing"] = report(rows), missing | failed
    for name, why in found["missing"].items():
        print(f"{name} left out: {why}")
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    command(main)
