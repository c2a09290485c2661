"""`echelon compare`: every algorithm and variant on every task with every seed, then the report."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from echelon.commands import INTERRUPTED
from echelon.commands.command import Command, TrainFlags, names_flag
from echelon.config.ranges import COUNT
from echelon.errors import UserError

if TYPE_CHECKING:
    from echelon.config import TrainConfig
    from echelon.grid import Job
    from echelon.grid.cluster import RayCluster
    from echelon.report.contents import Contents
    from echelon.training.resolve import Resolved


@dataclass(frozen=True)
class Compare(Command):
    """Train every algorithm or variant on every task with every seed, a run folder each, evaluate each at its end, and
    write the report. The same command resumes where it stopped; what is done is not done again, and what failed is
    tried again. All other flags are those of echelon train, for every run: --env-steps 5e6 --num-envs 512"""

    refused: ClassVar = {name: f"; did you mean {name}s?" for name in ("--algo", "--seed", "--task", "--variant")}

    tasks: tuple[str, ...] = ()
    """What to train."""
    algos: tuple[str, ...] = ()
    """Which algorithms; the built-in ones, unless there are variants."""
    variants: tuple[str, ...] = ()
    """Which variants, as in cpo no_pull no_adversary+entropy_off (echelon variants lists them)."""
    seeds: Annotated[int, COUNT.up_to(10_000)] = 5
    """How many seeds: 0 to N-1."""
    out: str = "runs/compare"
    """Folder of the run folders. With --on, all machines must share it."""
    score: str = "return"
    """What decides which is better: return, successes, ..."""
    workers: Annotated[int | None, COUNT] = None
    """Runs at a time; one per GPU, or on a CPU one per two cores, unless given."""
    on: str | None = None
    """Ray cluster: ray for this machine's, or ray://head:10001. When a node leaves, its runs resume elsewhere."""
    per_gpu: Annotated[int | None, COUNT] = None
    """Runs that share a GPU of the cluster, whose memory must hold them; 1 unless given."""
    cpus: Annotated[int | None, COUNT] = None
    """CPUs that each run reserves in the cluster; 1 beside a GPU, else all of a node, unless given."""
    train_flags: TrainFlags = ()

    def check(self) -> None:
        for name in ("tasks", "algos", "variants"):
            words = " ".join(getattr(self, name))
            if "," in words:
                raise UserError(f"--{name} takes names with spaces between them: --{name} {words.replace(',', ' ')}")
        if not self.tasks:
            raise UserError("compare needs tasks, as in echelon compare --tasks CartpoleSwingup Hopper")
        for name, value in (("--per-gpu", self.per_gpu), ("--cpus", self.cpus)):
            if value is not None and self.on is None:
                raise UserError(f"{name} is for a Ray cluster; add --on ray, or leave it out")
        if self.workers is not None and self.on is not None:
            raise UserError("--workers is for this machine; a Ray cluster runs what fits: see --cpus and --per-gpu")

    @property
    def folder(self) -> Path:
        """The folder that holds the run folders."""
        return Path(self.out).absolute() if self.on else Path(self.out)  # nodes work in other folders

    def run(self) -> int:
        from echelon import grid

        logs = self.folder / "logs"
        with cluster_of(self) as cluster:
            jobs = make_jobs(self, None if cluster is None else cluster.device)
            try:
                failed = grid.run(jobs, logs, workers=self.workers, cluster=cluster, finished=score_text)
            except KeyboardInterrupt:
                print(f"Stopped. The same command resumes:  {self.line}")
                return INTERRUPTED
        failures = {job.path: failed[job.name] for job in jobs if job.name in failed}

        from echelon.report.write import read_contents, write_report

        contents = read_contents([job.path for job in jobs], self.score, failures)
        record_best(contents, logs)
        write_report(contents, self.folder / "report")
        return 1 if failures else 0

    def configs(self) -> "Iterator[TrainConfig]":
        """The settings of every algorithm and variant on every task: the paper's, for what is built in."""
        from echelon.algorithms import BUILT_IN
        from echelon.commands.train import configure

        algos = self.algos or (() if self.variants else tuple(BUILT_IN))
        for task in dict.fromkeys(self.tasks):
            for algo in dict.fromkeys(algos):
                if algo in BUILT_IN:
                    yield configure(task, self.train_flags, [algo], command="compare --tasks")
                else:  # registered, or none
                    yield configure(task, [*self.train_flags, "--algo", algo], command="compare --tasks")
            for variant in dict.fromkeys(self.variants):
                yield configure(task, self.train_flags, variant.split("+"), command="compare --tasks")


@contextmanager
def cluster_of(order: Compare) -> "Iterator[RayCluster | None]":
    """The cluster that was asked for, while the grid needs it; None for this machine."""
    if order.on is None:
        yield None
        return
    from echelon.grid.cluster import RayCluster, require_address

    require_address(order.on)
    for _ in order.configs():
        pass  # reports mistakes before Ray starts
    cluster = RayCluster(order.on, per_gpu=order.per_gpu or 1, cpus=order.cpus)
    try:
        yield cluster
    finally:
        cluster.close()


def make_jobs(order: Compare, elsewhere: str | None = None) -> "list[Job]":
    """Make every job, first seeds first, so that a grid that is stopped early still compares. Whatever cannot work is
    reported before the first one starts. `elsewhere` is the device of a cluster that will train them."""
    from echelon.grid import Job
    from echelon.runs.folder import CONFIG, RunFolder

    notes: dict[str, list[str]] = {}
    configs: dict[str, TrainConfig] = {}
    for config in order.configs():
        resolved = _resolve(config, order.train_flags, elsewhere)
        configs[f"{config.task}-{config.method}"] = resolved.config
        for note in resolved.notes:
            notes.setdefault(note, []).append(f"{config.task} {config.method}")
    jobs = [
        Job(f"{name}-s{seed}", replace(config, seed=seed, out=str(order.folder / f"{name}-s{seed}")), evaluate=True)
        for seed in range(order.seeds)
        for name, config in configs.items()
    ]
    for job in jobs:
        if (job.path / CONFIG).exists():
            RunFolder.open(job.path).require_same(job.config)
    for note, names in notes.items():
        print(note if len(names) == len(configs) else f"{', '.join(names)}: {note}")
    return jobs


def _resolve(config: "TrainConfig", flags: Sequence[str], elsewhere: str | None) -> "Resolved":
    from echelon.algorithms import find
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
    """Record an episode of the runs whose replay the report will show. Each in its own process, since a report
    without replays is better than none."""
    from echelon.report.page import MAX_REPLAYS, best_runs
    from echelon.runs.replays import replay_path

    for run in best_runs(contents, lambda run: run.finished)[:MAX_REPLAYS]:
        replay, metrics = replay_path(run.path), run.path / "metrics.jsonl"
        if replay.exists() and replay.stat().st_mtime >= metrics.stat().st_mtime:
            continue
        log = logs / f"{run.path.name}.record.log"
        code = _call(["record", str(run.path), "--format", "html"], log)
        print(f"recorded {run.name}" if code == 0 else f"{run.name} could not be recorded; see {log}", flush=True)
