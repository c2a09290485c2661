"""`echelon paper`: a table or figure of the paper from runs of one's own, beside the numbers it prints."""

import math
import statistics
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from echelon.commands import INTERRUPTED
from echelon.commands.command import Command, TrainFlags, place
from echelon.commands.compare import Compare, make_jobs, score_text
from echelon.commands.report import inches
from echelon.config.ranges import COUNT
from echelon.errors import UserError, nearest

if TYPE_CHECKING:
    from echelon.grid import Job

PROBE_ITERATIONS = 12
"""Iterations trained to measure a rate; the first half compiles and is not counted."""
CPU_PROBE_ITERATIONS, CPU_PROBE_ENVS = 4, 16
"""On a CPU nothing compiles, and fewer environments per policy give the same rate."""


@dataclass(frozen=True)
class Paper(Command):
    """Train what a table or figure of the paper needs and is missing, and draw it beside the paper's published numbers.
    Runs are shared between them; the same command resumes where it stopped. Before it starts it says how long that will
    take, at the rate of runs in the same folder, or measured for a few iterations. All other flags are those of echelon
    train, for every run."""

    refused = (
        dict(Compare.refused)
        | dict.fromkeys(("--algo", "--algos", "--variant", "--variants", "--score"), ": the exhibit decides that")
        | dict.fromkeys(("--on", "--per-gpu", "--cpus"), "; echelon compare has it")
    )

    name: Annotated[tyro.conf.Positional[str], place("NAME")]
    """Which table or figure, as below."""
    plan: bool = False
    """Say what would be trained and how long it takes, and stop."""
    tasks: tuple[str, ...] = ()
    """Instead of the paper's."""
    seeds: Annotated[int, COUNT.up_to(10_000)] = 5
    """How many seeds, 0 to N-1; 5 as in the paper."""
    out: str = "runs/paper"
    """Folder of the run folders."""
    workers: Annotated[int | None, COUNT] = None
    """Runs at a time; one per GPU, or on a CPU one per two cores, unless given."""
    column: str = "5.5in"
    """Width of figures in print."""
    train_flags: TrainFlags = ()

    @classmethod
    def more_help(cls) -> str:
        from echelon.report.paper import EXHIBITS

        lines = (f"  {name:<11}{one.title}: {', '.join(one.methods)}" for name, one in EXHIBITS.items())
        return "\n".join(["", "names:", *lines, ""])

    def check(self) -> None:
        from echelon.report.paper import EXHIBITS

        if self.name not in EXHIBITS:
            hint = nearest(self.name, EXHIBITS) or "; there are " + ", ".join(EXHIBITS)
            raise UserError(f"the paper has no {self.name}{hint}")
        inches(self.column)

    def comparison(self) -> Compare:
        """The runs that the exhibit compares."""
        from echelon.report.paper import EXHIBITS

        exhibit = EXHIBITS[self.name]
        found = Compare(
            tasks=self.tasks or tuple(exhibit.tasks),
            variants=tuple(exhibit.methods),
            seeds=self.seeds,
            out=self.out,
            workers=self.workers,
            train_flags=(*self.train_flags, "--preset", "paper"),
        )
        found.check()
        return found

    def run(self) -> int:
        from echelon import grid
        from echelon.report.paper import EXHIBITS

        order, exhibit = self.comparison(), EXHIBITS[self.name]
        jobs, logs = make_jobs(order), order.folder / "logs"
        left = [job for job in jobs if not job.trained]
        print(f"{exhibit.title}: {len(jobs)} runs, {len(jobs) - len(left)} of them done")
        if left:
            print(cost_table(left, measured_rates(jobs, {job.config.task for job in left})))
        if self.plan:
            return 0
        try:
            failed = grid.run(jobs, logs, workers=self.workers, finished=score_text)
        except KeyboardInterrupt:
            print(f"Stopped. The same command resumes:  {self.line}")
            return INTERRUPTED
        out = order.folder / self.name
        rows = exhibit.draw([job.path for job in jobs if job.name not in failed], out, inches(self.column))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            print("  ".join(text.ljust(wide) for text, wide in zip(row, widths, strict=True)).rstrip())
        print(f"Written to {out}: {', '.join(sorted(path.name for path in out.iterdir()))}")
        return 1 if failed else 0


def measured_rates(jobs: "Sequence[Job]", tasks: Iterable[str]) -> dict[tuple[str, str], float]:
    """Environment steps per second by task and method, from finished runs; for a task without any, from a short
    probe of its costliest method."""
    rates: dict[tuple[str, str], float] = {}
    for job in jobs:
        newest = job.newest()
        if newest.get("wall_s"):
            rates[job.config.task, job.config.method] = newest["env_steps"] / newest["wall_s"]
    for task in tasks:
        if not any(known == task for known, _ in rates):
            probed = [job for job in jobs if job.config.task == task][-1]
            print(f"measuring the rate of {task}, {probed.config.method}, for a few iterations ...", flush=True)
            rates[task, probed.config.method] = _probe(probed)
    return rates


def _probe(job: "Job") -> float:
    """Steps per second of a few iterations in a folder that is thrown away; NaN if they fail."""
    from echelon import grid
    from echelon.config.checks import choose_device
    from echelon.console.view import NullView
    from echelon.runs.folder import RunFolder
    from echelon.runs.metrics import read_metrics

    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "probe"
        config = replace(job.config, iterations=PROBE_ITERATIONS, out=str(out))
        if choose_device(config.device).type == "cpu":
            fewer = min(config.num_envs, CPU_PROBE_ENVS * config.num_policies)
            config = replace(config, iterations=CPU_PROBE_ITERATIONS, num_envs=fewer)
        grid.run([grid.Job("probe", config)], Path(place), view=NullView())
        if not (out / "metrics.jsonl").exists():
            return math.nan
        rates = [line["fps/total"] for line in read_metrics(RunFolder(out, config)) if "fps/total" in line]
    return statistics.median(rates[len(rates) // 2 :] or [math.nan])


def cost_table(left: "Sequence[Job]", rates: dict[tuple[str, str], float]) -> str:
    """What is left to train: runs, steps, rate and time by task and method, and in all."""
    from echelon.console.tables import text_table
    from echelon.console.wording import count, duration

    rows: list[tuple[str, ...]] = []
    steps, seconds = 0.0, 0.0
    for task, method in dict.fromkeys((job.config.task, job.config.method) for job in left):
        here = [job for job in left if (job.config.task, job.config.method) == (task, method)]
        of_task = [rate for (known, _), rate in rates.items() if known == task]
        rate = rates.get((task, method), statistics.median(of_task) if of_task else math.nan)
        missing = [_missing(job) for job in here]
        steps, seconds = steps + sum(missing), seconds + sum(missing) / rate
        about = "" if (task, method) in rates else "~"
        times = (count(max(missing)), about + count(rate), duration(sum(missing) / rate))
        rows.append((task, method, str(len(here)), *times))
    table = text_table(rows, ("task", "method", "runs", "steps each", "steps/s", "time"), right=range(2, 6))
    hours = f"{duration(seconds)} ({seconds / 3600:,.1f} hours)" if math.isfinite(seconds) else "unknown time"
    return f"{table}In all {count(steps)} steps, {hours} of this machine, one run at a time"


def _missing(job: "Job") -> float:
    """Environment steps that are left."""
    wanted = job.config.num_iterations * job.config.steps_per_iteration
    return max(0.0, wanted - job.newest().get("env_steps", 0))
