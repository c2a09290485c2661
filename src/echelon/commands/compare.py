"""`echelon compare`: every algorithm on every task with every seed, then the report."""

import contextlib
import io
import itertools
import shlex
import subprocess
import sys
import typing
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from echelon.commands import INTERRUPTED
from echelon.errors import UserError

if TYPE_CHECKING:
    from echelon.grid.cells import Cell
    from echelon.report.contents import Contents

USAGE = """\
usage: echelon compare --tasks TASK ... [flags]

Train every algorithm on every task with every seed, a run folder each, and write the report. The same command goes on
where it stopped; what is done is not done again, and what failed is tried again.

  --tasks TASK ...     what to train
  --algos ALGO ...     which algorithms (default: all of them)
  --seeds N            seeds 0 to N-1 (default: 5)
  --out DIR            folder of the run folders (default: runs/compare)
  --score NAME         what decides which is better: return, successes, ... (default: return)

All other flags are those of echelon train, for every run: --env-steps 5000000 --num-envs 512 --update.clip 0.1
"""
OWN = ("--tasks", "--algos", "--seeds", "--out", "--score")
PER_CELL = ("--algo", "--seed", "--task")
"""Flags of `echelon train` that the grid gives."""


@dataclass(frozen=True)
class Order:
    """What was asked for."""

    tasks: list[str]
    algos: list[str]
    seeds: int
    out: Path
    score: str
    flags: list[str]
    """For `echelon train`."""


def run(arguments: list[str]) -> int:
    """Train the grid, write the report."""
    if {"-h", "--help"} & set(arguments):
        print(USAGE, end="")
        return 0
    order = read_order(arguments)
    cells = plan_cells(order)
    logs = make_logs(order.out)

    from echelon.commands.report import gradient_steps
    from echelon.grid.progress import GridProgress, choose_grid_view
    from echelon.grid.train_cells import train_cells

    progress = GridProgress(cells)
    view = choose_grid_view(progress)
    view.begin()
    try:
        train_cells(progress, logs, view)
    except KeyboardInterrupt:
        view.stop()
        print(f"Stopped. The same command goes on:  {shlex.join(['echelon', 'compare', *arguments])}")
        return INTERRUPTED
    view.stop()
    failures = {cell.path: progress.failed[cell.name] for cell in cells if cell.name in progress.failed}

    from echelon.report.write import read_contents, write_report

    contents = read_contents([cell.path for cell in cells], order.score, gradient_steps, failures)
    record_best(contents, logs)
    page = write_report(contents, order.out / "report")
    print(f"The report is {page}  (figures and tables beside it)")
    return 1 if failures else 0


def read_order(arguments: list[str]) -> Order:
    """The flags of the grid, apart from those of its runs."""
    from echelon.config import Algo

    own: dict[str, list[str]] = {}
    rest: list[str] = []
    for flag, words in _flags(arguments):
        name = flag.partition("=")[0].replace("_", "-")
        if name in PER_CELL:
            raise UserError(f"{name} is not a flag of echelon compare; did you mean {name}s?")
        if name not in OWN:
            rest += [flag, *words]
        else:
            own[name] = [flag.partition("=")[2], *words] if "=" in flag else words
    for name, words in own.items():
        if not words:
            raise UserError(f"{name} needs a value")
        if name not in ("--tasks", "--algos") and len(words) > 1:
            raise UserError(f"{name} takes one value, not {len(words)}: {shlex.join(words)}")
    if "--tasks" not in own:
        raise UserError("compare needs tasks, as in echelon compare --tasks CartpoleSwingup Hopper")
    (seeds,) = own.get("--seeds", ["5"])
    if not seeds.isdecimal() or int(seeds) < 1:
        raise UserError(f"--seeds takes how many seeds, a whole number of at least 1, not {seeds!r}")
    (out,), (score,) = own.get("--out", ["runs/compare"]), own.get("--score", ["return"])
    algos = own.get("--algos", list(typing.get_args(Algo)))
    return Order(_unique(own["--tasks"]), _unique(algos), int(seeds), Path(out), score, rest)


def plan_cells(order: Order) -> "list[Cell]":
    """Every cell, first seeds first, so that a grid that is stopped early still compares. Anything that cannot work is
    told before the first one starts."""
    from echelon.commands.train import configure
    from echelon.config.checks import validate
    from echelon.grid.cells import Cell
    from echelon.rollout.layout import Layout
    from echelon.runs.folder import CONFIG, RunFolder
    from echelon.training.trainer import make_plan

    cells: list[Cell] = []
    said: dict[str, None] = {}
    for seed in range(order.seeds):
        for task in order.tasks:
            for algo in order.algos:
                out = order.out / f"{task}-{algo}-s{seed}"
                with contextlib.redirect_stdout(io.StringIO()) as notes:
                    words = [*order.flags, "--algo", algo, "--seed", str(seed), "--out", str(out)]
                    config = configure(task, words)
                said |= dict.fromkeys(f"{task}, {algo}: {note}" for note in notes.getvalue().splitlines())
                if algo == "ppo":  # --policies is meant for the ensembles
                    config = replace(config, policies=None)
                validate(config)
                make_plan(Layout(config.num_envs, config.num_policies), config)
                if (out / CONFIG).exists():
                    RunFolder.open(out).require_same(config)
                cells.append(Cell(config, tuple(_spelled(config))))
    for note in said:
        print(note)
    return cells


def make_logs(out: Path) -> Path:
    """The folder for what the grid's processes print."""
    logs = out / "logs"
    try:
        logs.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{out} cannot be written: {error.strerror}; choose another folder with --out") from None
    return logs


def record_best(contents: "Contents", logs: Path) -> None:
    """Record an episode of the runs whose replay the report will show. Each in a process of its own, since a report
    without moving pictures is better than none."""
    from echelon.report.player import MAX_REPLAYS, best_runs
    from echelon.runs.replays import replay_path

    for run in best_runs(contents, lambda run: run.finished)[:MAX_REPLAYS]:
        replay, metrics = replay_path(run.path), run.path / "metrics.jsonl"
        if replay.exists() and replay.stat().st_mtime >= metrics.stat().st_mtime:
            continue
        log = logs / f"{run.path.name}.record.log"
        command = [sys.executable, "-m", "echelon.cli", "record", str(run.path), "--format", "html"]
        with log.open("wb") as out:
            code = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT).returncode
        print(f"recorded {run.name}" if code == 0 else f"{run.name} could not be recorded; see {log}", flush=True)


def _spelled(config: typing.Any) -> Iterator[str]:
    """The flags that make this config out of its task's preset."""
    from echelon.config.checks import settings_of
    from echelon.config.spelling import setting
    from echelon.presets import preset

    usual = settings_of(preset(config.task))
    for name, value in settings_of(config).items():
        if value != usual[name] or name == "num_envs":  # a number that is named is not fitted again
            yield from shlex.split(setting(name, value))


def _flags(arguments: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Each flag with the words after it."""
    from echelon.console.flags import looks_like_a_flag

    starts = [i for i, word in enumerate(arguments) if looks_like_a_flag(word)]
    if arguments and starts[:1] != [0]:
        raise UserError(f"{arguments[0]!r} stands where a flag was expected; see echelon compare --help")
    for start, end in itertools.pairwise([*starts, len(arguments)]):
        yield arguments[start], arguments[start + 1 : end]


def _unique(words: list[str]) -> list[str]:
    return list(dict.fromkeys(words))
