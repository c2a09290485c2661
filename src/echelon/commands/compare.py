"""`echelon compare`: every algorithm and variant on every task with every seed, then the report."""

import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from echelon.commands import INTERRUPTED
from echelon.config.ranges import COUNT, require
from echelon.errors import UserError

if TYPE_CHECKING:
    from echelon.config import TrainConfig
    from echelon.grid import Job
    from echelon.grid.cluster import RayCluster
    from echelon.report.contents import Contents
    from echelon.training.resolve import Resolved

USAGE = """\
usage: echelon compare --tasks TASK ... [flags]

Train every algorithm or variant on every task with every seed, a run folder each, evaluate each at its end, and write
the report. The same command resumes where it stopped; what is done is not done again, and what failed is tried again.

  --tasks TASK ...     what to train
  --algos ALGO ...     which algorithms (default: all of them, unless there are variants)
  --variants NAME ...  which variants, as in cpo no_pull no_adversary+entropy_off (echelon variants lists them)
  --seeds N            seeds 0 to N-1 (default: 5)
  --out DIR            folder of the run folders (default: runs/compare)
  --score NAME         what decides which is better: return, successes, ... (default: return)
  --workers N          runs at a time (default: one per GPU; on a CPU one per two cores)
  --on ray             train on the Ray cluster of this machine, or on one elsewhere: --on ray://head:10001
  --per-gpu N          runs that share a GPU of the cluster, whose memory must hold them (default: 1)
  --cpus N             CPUs that each run reserves in the cluster (default: 1 beside a GPU, else all of a node)

With --on, DIR must be a folder that all machines share. Nodes may leave and join: their runs resume elsewhere.
All other flags are those of echelon train, for every run: --env-steps 5000000 --num-envs 512 --update.clip 0.1
"""
GRID_FLAGS = ("--tasks", "--algos", "--variants", "--seeds", "--out", "--score")
WHERE_FLAGS = ("--workers", "--on", "--per-gpu", "--cpus")
SET_PER_RUN = ("--algo", "--seed", "--task", "--variant")
"""Flags of `echelon train` that the grid sets for each run."""


@dataclass(frozen=True)
class Order:
    """The parsed flags."""

    tasks: list[str]
    algos: list[str]
    variants: list[str]
    """Several that follow one another are joined by +."""
    seeds: int
    out: Path
    score: str
    flags: list[str]
    """For `echelon train`."""
    workers: int | None = None
    on: str | None = None
    """A Ray cluster; None for this machine."""
    per_gpu: int = 1
    cpus: int | None = None


def run(arguments: list[str]) -> int:
    """Train the grid, write the report."""
    if {"-h", "--help"} & set(arguments):
        print(USAGE, end="")
        return 0
    order = read_order(arguments)
    logs = order.out / "logs"

    from echelon import grid

    with cluster_of(order) as cluster:
        jobs = make_jobs(order, None if cluster is None else cluster.device)
        try:
            failed = grid.run(jobs, logs, workers=order.workers, cluster=cluster, finished=score_text)
        except KeyboardInterrupt:
            print(f"Stopped. The same command resumes:  {shlex.join(['echelon', 'compare', *arguments])}")
            return INTERRUPTED
    failures = {job.path: failed[job.name] for job in jobs if job.name in failed}

    from echelon.report.write import read_contents, write_report

    contents = read_contents([job.path for job in jobs], order.score, failures)
    record_best(contents, logs)
    write_report(contents, order.out / "report")
    return 1 if failures else 0


def read_order(arguments: list[str]) -> Order:
    """Split the flags of the grid from those of its runs."""
    from echelon.algorithms.settings import BUILT_IN
    from echelon.console.flags import one_count, one_value, split_flags

    own, rest = split_flags(arguments, (*GRID_FLAGS, *WHERE_FLAGS, *SET_PER_RUN), "echelon compare")
    for name in SET_PER_RUN:
        if name in own:
            raise UserError(f"{name} is not a flag of echelon compare; did you mean {name}s?")
    for name in ("--tasks", "--algos", "--variants"):
        words = " ".join(own.get(name, []))
        if "," in words:
            raise UserError(f"{name} takes names with spaces between them: {name} {words.replace(',', ' ')}")
    if "--tasks" not in own:
        raise UserError("compare needs tasks, as in echelon compare --tasks CartpoleSwingup Hopper")
    variants, seeds = own.get("--variants", []), one_count(own, "--seeds", 5)
    require("seeds", seeds, COUNT.up_to(10_000))
    on = one_value(own, "--on", "") or None
    for name in ("--per-gpu", "--cpus"):
        if name in own and on is None:
            raise UserError(f"{name} is for a Ray cluster; add --on ray, or leave it out")
    if "--workers" in own and on is not None:
        raise UserError("--workers is for this machine; a Ray cluster runs what fits: see --cpus and --per-gpu")
    out = Path(one_value(own, "--out", "runs/compare"))
    return Order(
        tasks=_unique(own["--tasks"]),
        algos=_unique(own.get("--algos", [] if variants else list(BUILT_IN))),
        variants=_unique(variants),
        seeds=seeds,
        out=out.absolute() if on else out,  # nodes work in other folders
        score=one_value(own, "--score", "return"),
        flags=rest,
        on=on,
        workers=one_count(own, "--workers", 1) if "--workers" in own else None,
        per_gpu=one_count(own, "--per-gpu", 1),
        cpus=one_count(own, "--cpus", 1) if "--cpus" in own else None,
    )


@contextmanager
def cluster_of(order: Order) -> "Iterator[RayCluster | None]":
    """The cluster that was asked for, while the grid needs it; None for this machine."""
    if order.on is None:
        yield None
        return
    from echelon.grid.cluster import RayCluster, require_address

    require_address(order.on)
    for _ in _asked_for(order):
        pass  # reports mistakes before Ray starts
    cluster = RayCluster(order.on, per_gpu=order.per_gpu, cpus=order.cpus)
    try:
        yield cluster
    finally:
        cluster.close()


def make_jobs(order: Order, elsewhere: str | None = None) -> "list[Job]":
    """Make every job, first seeds first, so that a grid that is stopped early still compares. Whatever cannot work is
    reported before the first one starts. `elsewhere` is the device of a cluster that will train them."""
    from echelon.grid import Job
    from echelon.runs.folder import CONFIG, RunFolder

    notes: dict[str, None] = {}
    configs: dict[str, TrainConfig] = {}
    for config in _asked_for(order):
        resolved = _resolve(config, order.flags, elsewhere)
        configs[f"{config.task}-{config.method}"] = resolved.config
        notes |= dict.fromkeys(f"{config.task}, {config.method}: {note}" for note in resolved.notes)
    jobs = [
        Job(f"{name}-s{seed}", replace(config, seed=seed, out=str(order.out / f"{name}-s{seed}")), evaluate=True)
        for seed in range(order.seeds)
        for name, config in configs.items()
    ]
    for job in jobs:
        if (job.path / CONFIG).exists():
            RunFolder.open(job.path).require_same(job.config)
    for note in notes:
        print(note)
    return jobs


def _asked_for(order: Order) -> "Iterator[TrainConfig]":
    """The settings of every algorithm and variant on every task: the paper's, for what is built in."""
    from echelon.algorithms.settings import BUILT_IN
    from echelon.commands.train import configure

    for task in order.tasks:
        for algo in order.algos:
            if algo in BUILT_IN:
                yield configure(task, order.flags, [algo])
            else:  # registered, or none
                yield configure(task, [*order.flags, "--algo", algo])
        for variant in order.variants:
            yield configure(task, order.flags, variant.split("+"))


def _resolve(config: "TrainConfig", flags: list[str], elsewhere: str | None) -> "Resolved":
    from echelon.algorithms import find
    from echelon.commands.train import names_flag
    from echelon.training.resolve import resolve

    if find(config.algo).one_policy:  # --policies is meant for the others
        config = replace(config, policies=None)
    if elsewhere == "cpu" and config.device == "cuda":
        raise UserError("--device cuda was asked for but the cluster has no GPU; use --device cpu or auto")
    if elsewhere is not None and config.device != "auto":
        elsewhere = config.device
    return resolve(config, fit_envs=not names_flag(flags, "--num-envs"), elsewhere=elsewhere)


def score_text(job: "Job") -> str:
    """Say how a trained job was evaluated."""
    from echelon.console.wording import figure

    return f"evaluated return {figure(job.score())}" if job.done else "but it could not be evaluated; see its log"


def _call(words: list[str], log: Path) -> int:
    """Run an echelon command in a process of its own; its exit code."""
    with log.open("wb") as out:
        command = [sys.executable, "-m", "echelon.cli", *words]
        return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT).returncode


def record_best(contents: "Contents", logs: Path) -> None:
    """Record an episode of the runs whose replay the report will show. Each in a process of its own, since a report
    without moving pictures is better than none."""
    from echelon.report.page import MAX_REPLAYS, best_runs
    from echelon.runs.replays import replay_path

    for run in best_runs(contents, lambda run: run.finished)[:MAX_REPLAYS]:
        replay, metrics = replay_path(run.path), run.path / "metrics.jsonl"
        if replay.exists() and replay.stat().st_mtime >= metrics.stat().st_mtime:
            continue
        log = logs / f"{run.path.name}.record.log"
        code = _call(["record", str(run.path), "--format", "html"], log)
        print(f"recorded {run.name}" if code == 0 else f"{run.name} could not be recorded; see {log}", flush=True)


def _unique(words: list[str]) -> list[str]:
    return list(dict.fromkeys(words))
