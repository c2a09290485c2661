"""Is training slower after a change? Two source trees take turns on one machine.

    git worktree add /tmp/before REVISION
    python benchmarks/before_after.py /tmp/before/src src                              # on a CUDA GPU
    python benchmarks/before_after.py /tmp/before/src src --device cpu --cases Hopper:cpo CartpoleSwingup:ppo
    python benchmarks/before_after.py /tmp/before/src src --together --cases AllegroHand:pbt AllegroHand:ppo:4096

For each case both trees build the task with its preset in a process of their own and warm up. Then they take turns, so
that whatever else the machine does meets both alike: A trains `--iterations`, then B does, `--repeats` times; who goes
first alternates. Reported are medians of an iteration, and the median over the turns of B's time over A's, with its
range. Trees may lay out their modules differently: `build` is the only place that knows.
"""

import argparse
import importlib
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from command import append, markdown, options

CASES = ("AllegroHand:ppo", "AllegroHand:sapg", "AllegroHand:cpo", "ShadowHand:cpo")
WARM_UPS = 3
"""As it is, recording, a first replay."""
Turn = dict[str, list[float]]
"""Milliseconds of each iteration of a turn: whole, and by part."""


def build(case: str, num_envs: int | None, device: str) -> Any:
    """A trainer of the tree that is on the path. Members of a population all take the preset's number of passes."""
    task, algo, *number = case.split(":")
    num_envs = int(number[0]) if number else num_envs
    from echelon import preset, tasks

    config: Any = replace(preset(task), algo=algo, device=device)  # pyright: ignore[reportArgumentType]
    config = replace(config, num_envs=num_envs or config.num_envs)
    if algo == "pbt":
        config = replace(config, pbt=replace(config.pbt, mutate_at_start=False))
    find("echelon.training.setup:set_up_torch", "echelon.training.loop:set_up_torch")(config)
    where = find("echelon.config.checks:choose_device")(device)
    env = tasks.make(task, config.env, config.num_envs, where, config.seed, spread_clocks=True)
    return find("echelon.training.trainer:Trainer")(env, config)


def find(*places: str) -> Any:
    """What stands in the first of these places, `module:name`, that the tree has."""
    for place in places:
        module, _, name = place.partition(":")
        with suppress(ImportError, AttributeError):
            return getattr(importlib.import_module(module), name)
    raise ImportError(f"this tree has none of {', '.join(places)}; tell `build` where it is")


def serve(case: str, num_envs: int | None, device: str) -> None:
    """The child: build, warm up, then for every number on standard input train so many iterations and answer."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print is no answer
    import torch

    import echelon

    trainer = build(case, num_envs, device)
    wait = torch.cuda.synchronize if trainer.env.device.type == "cuda" else (lambda: None)
    for _ in range(WARM_UPS):
        trainer.iterate()
    answers.write(json.dumps(echelon.__file__) + "\n")
    for line in sys.stdin:
        turn: Turn = {"iteration": []}
        for _ in range(int(line)):
            wait()
            began = time.perf_counter()
            trainer.iterate()
            wait()
            turn["iteration"].append(1000 * (time.perf_counter() - began))
            for name, seconds in trainer.timers.metrics().items():
                turn.setdefault(name.removeprefix("time/"), []).append(1000 * seconds)
        answers.write(json.dumps(turn) + "\n")


class Child:
    """A tree's training of a case, in a process of its own that waits while the other tree has its turn."""

    def __init__(self, tree: Path, case: str, args: argparse.Namespace) -> None:
        self.tree = tree
        paths = [str(tree), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--child", json.dumps([case, args.num_envs, args.device])],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def wait_until_ready(self) -> "Child":
        imported = self.answer()
        if not Path(imported).resolve().is_relative_to(self.tree.resolve()):
            sys.exit(f"error: {self.tree} was asked for, but {imported} was imported")
        return self

    def turn(self, iterations: int) -> Turn:
        assert self.process.stdin is not None
        print(iterations, file=self.process.stdin, flush=True)
        return self.answer()

    def answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"error: training from {self.tree} ended with status {self.process.wait()}, as said above")
        return json.loads(line)


def measure(case: str, both: Sequence[Child], args: argparse.Namespace) -> dict[str, Any]:
    """Turns of both trees."""
    turns: tuple[list[Turn], list[Turn]] = ([], [])
    for number in range(args.repeats):
        for side in (0, 1) if number % 2 == 0 else (1, 0):
            turns[side].append(both[side].turn(args.iterations))
    for child in both:
        child.process.communicate()  # closes its input, at which it ends
    return {"case": case, "a": turns[0], "b": turns[1]}


def compare(a: Sequence[Turn], b: Sequence[Turn], part: str = "iteration") -> tuple[float, float, list[float]]:
    """Median milliseconds of both sides, and B's median over A's turn by turn."""
    medians = [[statistics.median(turn[part]) for turn in side] for side in (a, b)]
    ratios = [after / before if before else float("nan") for before, after in zip(*medians, strict=True)]
    return statistics.median(medians[0]), statistics.median(medians[1]), ratios


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Markdown: a line per case, and B / A of the parts that both have."""
    lines = []
    for row in rows:
        a, b = row["a"], row["b"]
        before, after, ratios = compare(a, b)
        shared = [name for name in a[0] if name in b[0] and name != "iteration" and any(a[0][name])]
        parts = ", ".join(f"{name} {statistics.median(compare(a, b, name)[2]):.3f}" for name in shared)
        cells = (f"{before:.2f}", f"{after:.2f}", f"{statistics.median(ratios):.3f}")
        lines.append((row["case"], *cells, f"{min(ratios):.3f} to {max(ratios):.3f}", parts))
    return markdown(("case", "A, ms", "B, ms", "B / A", "range", "B / A by part"), lines)


def tree(text: str) -> Path:
    if not (Path(text) / "echelon").is_dir():
        raise argparse.ArgumentTypeError(f"{text} has no folder echelon; give the src folder of a checkout")
    return Path(text)


def case(text: str) -> str:
    if not re.fullmatch(r"\w+:\w+(:\d+)?", text):
        raise argparse.ArgumentTypeError(f"{text} is no case; write TASK:ALGO or TASK:ALGO:ENVS, as in AllegroHand:cpo")
    return text


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("before", type=tree, metavar="A", help="a src folder")
    parser.add_argument("after", type=tree, metavar="B", help="another")
    parser.add_argument("--cases", nargs="+", type=case, default=CASES, metavar="TASK:ALGO[:ENVS]")
    parser.add_argument("--num-envs", type=int, help="the preset's unless given")
    parser.add_argument("--device", choices=("cpu", "cuda", "auto"), default="auto")
    parser.add_argument("--iterations", type=int, default=10, help="of a turn")
    parser.add_argument("--repeats", type=int, default=6, help="turns of each tree")
    parser.add_argument("--together", action="store_true", help="build all cases side by side; takes their memory")
    parser.add_argument("--json", type=Path, help="append a line per case, with every iteration, to this file")
    args = parser.parse_args()
    rows = []
    started = {}
    for name in args.cases if args.together else ():
        started[name] = [Child(tree, name, args) for tree in (args.before, args.after)]
    for child in [child for both in started.values() for child in both]:
        child.wait_until_ready()
    for name in args.cases:
        # One after the other, so that the second finds what the first compiled.
        trees = (args.before, args.after)
        both = started.get(name) or [Child(tree, name, args).wait_until_ready() for tree in trees]
        rows.append(measure(name, both, args))
        print(table(rows[-1:]).splitlines()[-1], flush=True)
        append(args.json, rows[-1:])
    print(f"\nA: {args.before}\nB: {args.after}\n\n{table(rows)}")


if __name__ == "__main__":
    serve(*json.loads(sys.argv[2])) if sys.argv[1:2] == ["--child"] else main()
