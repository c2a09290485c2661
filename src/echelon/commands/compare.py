"""`echelon compare`: every algorithm and variant on every task with every seed, then the report."""

import itertools
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from echelon.algorithms import FROM_SCRATCH, IN_PRESET, find
from echelon.commands.command import Command, TrainFlags, names_flag
from echelon.commands.train import configure, given_flags, reads, require_read
from echelon.config import TrainConfig
from echelon.config.checks import with_settings
from echelon.config.ranges import COUNT
from echelon.console.flags import flags_of, nearest_flag
from echelon.errors import UserError, is_installed, nearest
from echelon.runs.durable import writing
from echelon.runs.folder import CONFIG, RunFolder
from echelon.tasks import built_in
from echelon.training.resolve import resolve

if TYPE_CHECKING:
    from echelon.grid import Job
    from echelon.grid.cluster import RayCluster
    from echelon.report.contents import Contents


UNEVEN = {"--until": ": runs that end at different times cannot be compared"}
"""A flag of `echelon train` that no grid takes."""
OF_SEVERAL = {"policies": None, "envs_per_policy": ()}
"""Settings that are meant for the other methods of a comparison, where one trains a single policy."""


@dataclass(frozen=True)
class OnGrid(Command):
    """A command that trains a grid, on this machine or on a Ray cluster."""

    workers: Annotated[int | None, COUNT] = None
    """Runs at a time; if unset, one per GPU, or on a CPU one per two cores."""
    on: str | None = None
    """Ray cluster: ray for this machine's, or ray://head:10001. When a node leaves, its runs resume elsewhere."""
    per_gpu: Annotated[int | None, COUNT] = None
    """Runs that share a GPU of the cluster, whose memory must hold them; if unset, 1."""
    cpus: Annotated[int | None, COUNT] = None
    """CPUs that each run reserves in the cluster; if unset, 1 beside a GPU, else all of a node."""

    def check(self) -> None:
        super().check()
        for name, value in (("--per-gpu", self.per_gpu), ("--cpus", self.cpus)):
            if value is not None and self.on is None:
                raise UserError(f"{name} is for a Ray cluster; add --on ray, or leave it out")
        if self.workers is not None and self.on is not None:
            raise UserError("--workers is for this machine; a Ray cluster runs what fits: see --cpus and --per-gpu")

    @contextmanager
    def cluster(self) -> "Iterator[RayCluster | None]":
        """The connection to the Ray cluster that `--on` names, if it does."""
        if self.on is None:
            yield None
            return
        from echelon.grid.cluster import RayCluster

        with closing(RayCluster(self.on, per_gpu=self.per_gpu or 1, cpus=self.cpus)) as cluster:
            yield cluster


@dataclass(frozen=True)
class Compare(OnGrid):
    """Train every algorithm or variant on every task with every seed, a run folder each, evaluate each at its end, and
    write the report. The same command resumes where it stopped; what is done is not done again, and what failed is
    tried again. All other flags are those of echelon train, for every run: --env-steps 5e6 --num-envs 512"""

    refused: ClassVar = UNEVEN | {"--config": ": give its settings as flags"}
    refused |= {name: f"; did you mean {name}s?" for name in ("--algo", "--seed", "--task", "--variant")}

    tasks: tuple[str, ...] = ()
    """What to train."""
    algos: tuple[str, ...] = ()
    """Which algorithms; the built-in ones, unless there are variants."""
    variants: tuple[str, ...] = ()
    """Which variants, as in cpo no_pull no_adversary+entropy_off (echelon variants lists them)."""
    sweep: tuple[str, ...] = ()
    """A setting and its values, as in update.learning-rate 1e-4 3e-4 1e-3: each is trained."""
    seeds: Annotated[int, COUNT.up_to(10_000)] = 5
    """How many seeds: 0 to N-1."""
    out: str = "runs/compare"
    """Folder of the run folders. With --on, all machines must share it."""
    score: str = "return"
    """What decides which is better: return, successes, ..."""
    train_flags: TrainFlags = ()

    def check(self) -> None:
        for name in ("tasks", "algos", "variants"):
            words = " ".join(getattr(self, name))
            if "," in words:
                raise UserError(f"--{name} takes names with spaces between them: --{name} {words.replace(',', ' ')}")
        if not self.tasks:
            raise UserError("compare needs tasks, as in echelon compare --tasks CartpoleSwingup Hopper")
        super().check()

    @property
    def folder(self) -> Path:
        """The folder that holds the run folders."""
        return Path(self.out).absolute() if self.on else Path(self.out)  # nodes work in other folders

    def run(self) -> int:
        from echelon.report.write import write_report

        if self.on is not None:
            list(self.configs())  # reports mistakes before Ray starts
        with self.cluster() as cluster:
            contents, code = train_all(self, make_jobs(self, cluster and cluster.device), cluster)
        record_best(contents, self.folder / "logs")
        write_report(contents, self.folder / "report")
        return code

    def configs(self) -> Iterator[tuple[str, TrainConfig]]:
        """The settings of every algorithm and variant on every task: the paper's, for what is built in. With
        `--sweep`, of every value. Each has a name."""
        algos = self.algos or (() if self.variants else FROM_SCRATCH)
        make, trained = partial(configure, command="compare --tasks", shared=True), dict[str, Iterable[str]]()
        for task, name in itertools.product(dict.fromkeys(self.tasks), dict.fromkeys((*algos, *self.variants))):
            foreign = name in algos and name not in IN_PRESET  # registered, or none
            flags = [*self.train_flags, "--algo", name] if foreign else self.train_flags
            given = () if foreign else name.split("+")
            config = make(task, flags, given)
            swept = swept_settings(config, self.sweep, "--sweep", self.refused)
            names = {flag: flags_of(config)[flag].name for flag in swept}
            trained |= {config.algo: [*given_flags(config, flags, "compare --tasks", ""), *names.values()]}
            read = [flag for flag in swept if reads(config.algo, names[flag])]  # another would repeat the same run
            if {*names.values()} & {*OF_SEVERAL} and find(config.algo).one_policy:
                read = [flag for flag in read if names[flag] not in OF_SEVERAL]
            for values in itertools.product(*map(swept.__getitem__, read)):
                chosen = [*zip(read, values, strict=True)]
                parts = [f"{flag.strip('-').rpartition('.')[2]}-{value.replace('/', '_')}" for flag, value in chosen]
                words = [word for setting in chosen for word in setting]
                each = make(task, [*flags, *words], given) if words else config
                yield "-".join([config.task, config.method, *parts]), each
        require_read(trained, itertools.chain(*trained.values()))


def swept_settings(
    config: TrainConfig, words: Sequence[str], flag: str, refused: Mapping[str, str] = UNEVEN
) -> dict[str, list[str]]:
    """Values by setting, as flags, of words such as `update.clip 0.1 0.2 model.lstm 0 64`."""
    known, found, values = flags_of(config), dict[str, list[str]](), list[str]()
    refused = {**refused, "--out": ": each run has a folder of its own"}
    for word in words:
        if (spelled := f"--{word.replace('_', '-')}") in refused:
            raise UserError(f"{flag} takes no {word}{refused[spelled]}")
        if spelled in known:
            found[spelled] = values = []
        elif not found:
            hint = nearest_flag(word, known).replace("--", "")
            raise UserError(f"{flag} takes a setting and its values, as in update.clip 0.1 0.2, not {word}{hint}")
        else:
            values.append(word)
    for name, listed in found.items():
        if len(listed) < 2:
            raise UserError(f"{flag} {name.lstrip('-')} needs two values or more")
    return found


def make_jobs(order: Compare, elsewhere: str | None = None, quiet: bool = False) -> "list[Job]":
    """Make every job, first seeds first, so that a grid that is stopped early still compares. Whatever cannot work is
    reported before the first one starts, and unless `quiet`, what was adapted. `elsewhere` is the device of a cluster
    that will train them."""
    from echelon.grid import Job

    notes: dict[str, list[str]] = {}
    configs: dict[str, TrainConfig] = {}
    fit_envs = not names_flag([*order.train_flags, *(f"--{word}" for word in order.sweep)], "--num-envs")
    for name, config in order.configs():
        if name in configs:
            raise UserError(f"two runs would be called {name}; leave one out, or compare it in another --out")
        if elsewhere == "cpu" and config.device == "cuda":
            raise UserError("--device cuda was asked for but the cluster has no GPU; use --device cpu or auto")
        if find(config.algo).one_policy:
            config = with_settings(config, OF_SEVERAL)
        device = elsewhere and (elsewhere if config.device == "auto" else config.device)
        resolved = resolve(config, fit_envs=fit_envs, elsewhere=device)
        configs[name] = resolved.config
        for note in resolved.notes:
            notes.setdefault(note, []).append(f"{config.task} {config.method}")
    require_score(order.score, configs.values())
    jobs = [
        Job(f"{name}-s{seed}", replace(config, seed=seed, out=str(order.folder / f"{name}-s{seed}")), evaluate=True)
        for seed in range(order.seeds)
        for name, config in configs.items()
    ]
    for job in jobs:
        if (job.path / CONFIG).exists():
            RunFolder.open(job.path).require_same(job.config)
        if job.saved > (asked := job.config.num_iterations):
            beyond = f"{job.path} is at iteration {job.saved} already, beyond the {asked} that were asked for"
            raise UserError(f"{beyond}; ask for more, or choose another folder with --out")
    for note, names in () if quiet else notes.items():
        print(note if len(names) == len(configs) else f"{', '.join(names)}: {note}")
    return jobs


def require_score(score: str, configs: Iterable[TrainConfig]) -> None:
    """Raise a `UserError` for a score that no run will log. Of built-in tasks this is known where their environments
    can be built on the CPU; others may log anything."""
    name, tasks = score.removesuffix("/leader"), {config.task: config for config in configs}
    if name == "return" or not all(map(built_in, tasks.values())) or not is_installed("mujoco.batch"):
        return
    from echelon.evaluation.evaluate import score_names

    known = dict.fromkeys(one for config in tasks.values() for one in score_names(config))
    if name not in known:
        hint = nearest(name, known) or f"; there are {', '.join(known)}"
        raise UserError(f"--score {score} is not logged by {' or '.join(tasks)}{hint}")


def train_all(order: Compare, jobs: "list[Job]", cluster: "RayCluster | None" = None) -> "tuple[Contents, int]":
    """Train and evaluate the jobs; what a report says of them, and the exit code."""
    from echelon import grid
    from echelon.report.write import read_contents

    failed = grid.run(jobs, order.folder / "logs", workers=order.workers, cluster=cluster)
    failures = {job.path: failed[job.name] for job in jobs if job.name in failed}
    return read_contents([job.path for job in jobs], order.score, failures), 1 if failed else 0


def record_best(contents: "Contents", logs: Path) -> None:
    """Record an episode of the runs whose replay the report will show. Each in its own process, since a report
    without replays is better than none."""
    from echelon.report.page import MAX_REPLAYS, best_runs
    from echelon.runs.replays import replay_path

    for run in best_runs(contents, lambda run: run.finished)[:MAX_REPLAYS]:
        replay, log = replay_path(run.path), logs / f"{run.path.name}.record.log"
        if replay.exists() and replay.stat().st_mtime >= (run.path / "metrics.jsonl").stat().st_mtime:
            continue
        command = [sys.executable, "-m", "echelon.cli", "record", str(run.path), "--format", "html"]
        with writing(log), log.open("wb") as out:
            failed = subprocess.call(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
        print(f"{run.name} could not be recorded; see {log}" if failed else f"recorded {run.name}", flush=True)
