"""`echelon paper`: a table or figure of the paper from runs of one's own, beside the numbers it prints."""

import math
import shlex
import statistics
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from echelon.commands import INTERRUPTED
from echelon.errors import UserError, nearest

if TYPE_CHECKING:
    from echelon.grid import Job
    from echelon.report.paper import Exhibit

USAGE = """\
usage: echelon paper NAME [flags]

Train what a table or figure of the paper needs and is missing, and draw it beside the paper's published numbers. Runs
are shared between them; the same command resumes where it stopped. Before it starts it says how long that will take, at
the rate of runs in the same folder, or measured for a few iterations.

  --plan               say what would be trained and how long it takes, and stop
  --tasks TASK ...     instead of the paper's
  --seeds N            seeds 0 to N-1 (default: 5, as in the paper)
  --env-steps S        instead of the presets' budgets
  --out DIR            folder of the run folders (default: runs/paper)
  --workers N          runs at a time (default: one per GPU; on a CPU one per two cores)
  --column WIDTH       width of figures in print (default: 5.5in)

All other flags are those of echelon train, for every run.

names:
"""
SET_BY_EXHIBIT = ("--algos", "--variants", "--score")
ONLY_COMPARE = ("--on", "--per-gpu", "--cpus")
PROBE_ITERATIONS = 12
"""Iterations trained to measure a rate; the first half compiles and is not counted."""
CPU_PROBE_ITERATIONS, CPU_PROBE_ENVS = 4, 16
"""On a CPU, where nothing compiles, and fewer environments for each policy than a GPU wants have the same rate."""


def run(arguments: list[str]) -> int:
    """Plan, train, draw."""
    from echelon.report.paper import EXHIBITS

    if not arguments or {"-h", "--help"} & set(arguments):
        lines = [f"  {name:<11}{one.title}: {', '.join(one.methods)}" for name, one in EXHIBITS.items()]
        print(USAGE + "\n".join(lines))
        return 0
    name, *flags = arguments
    if name not in EXHIBITS:
        raise UserError(f"the paper has no {name}{nearest(name, EXHIBITS) or '; there are ' + ', '.join(EXHIBITS)}")

    from echelon import grid
    from echelon.commands.compare import make_jobs, read_order, score_text
    from echelon.commands.report import inches

    only_plan, column, words = _own_flags(flags)
    width = inches(column)
    order = read_order(_for_compare(EXHIBITS[name], words))
    jobs, logs = make_jobs(order), order.out / "logs"
    left = [job for job in jobs if not job.trained]
    print(f"{EXHIBITS[name].title}: {len(jobs)} runs, {len(jobs) - len(left)} of them done")
    if left:
        print(cost_table(left, measured_rates(jobs, {job.config.task for job in left})))
    if only_plan:
        return 0
    try:
        failed = grid.run(jobs, logs, workers=order.workers, finished=score_text)
    except KeyboardInterrupt:
        print(f"Stopped. The same command resumes:  {shlex.join(['echelon', 'paper', *arguments])}")
        return INTERRUPTED
    out = order.out / name
    rows = EXHIBITS[name].draw([job.path for job in jobs if job.name not in failed], out, width)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(text.ljust(wide) for text, wide in zip(row, widths, strict=True)).rstrip())
    print(f"Written to {out}: {', '.join(sorted(path.name for path in out.iterdir()))}")
    return 1 if failed else 0


def _own_flags(flags: list[str]) -> tuple[bool, str, list[str]]:
    """Whether only the plan is wanted, the width of figures, and the other flags."""
    from echelon.console.flags import one_value, split_flags

    words = [word for word in flags if word != "--plan"]
    own, rest = split_flags(words, ("--column", *SET_BY_EXHIBIT, *ONLY_COMPARE), "echelon paper NAME")
    for name in own:
        if name in SET_BY_EXHIBIT:
            raise UserError(f"{name} is not a flag of echelon paper: the exhibit decides that")
        if name in ONLY_COMPARE:
            raise UserError(f"{name} is not a flag of echelon paper; echelon compare has it")
    return "--plan" in flags, one_value(own, "--column", "5.5in"), rest


def _for_compare(exhibit: "Exhibit", words: list[str]) -> list[str]:
    """The exhibit and the user's flags as flags of `echelon compare`."""

    def given(flag: str) -> bool:
        return any(word.partition("=")[0] == flag for word in words)

    words = [*words, "--preset", "paper", "--variants", *exhibit.methods]
    words += [] if given("--tasks") else ["--tasks", *exhibit.tasks]
    return words if given("--out") else [*words, "--out", "runs/paper"]


def measured_rates(jobs: "Sequence[Job]", tasks: Iterable[str]) -> dict[tuple[str, str], float]:
    """Environment steps per second by task and method, of what has been trained; of a task without any, of a short
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
