"""`echelon plan`: how long a run would take on many GPUs, and how to use them."""

import contextlib
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from echelon.commands.tasks import task_list
from echelon.errors import UserError

if TYPE_CHECKING:
    from echelon.planning.links import Links
    from echelon.planning.model import Rates

USAGE = """\
usage: echelon plan TASK --gpus R [flags]
       echelon plan --env SOURCE --gpus R [flags]

Say how long a run of TASK would take on R GPUs, each with as many environments as one has here, by the rates of one and
the speed of the links between them, and how the GPUs are best used: as one run whose minibatches grow, as one run with
R times the optimizer steps, or as islands. Nothing is trained but a few iterations that are timed.

  --gpus R             how many
  --steps S            environment steps to make, as in 2e10 (default: the task's budget)
  --bench FILE         take the rates from a file that echelon bench wrote, instead of measuring here
  --rates h200         take the published rates of an H200
  --repeats K          iterations to time (default: 10)
  --jitter X           by which part iterations of alike GPUs differ (default: 0.01)
  --gpus-per-node N    (default: 8)
  --node-gb X          GB/s that a GPU sends to another of its node (default: 450), --node-us for a hop (4)
  --network-gbit X     Gb/s that a GPU sends to one of another node (default: 400), --network-us for a hop (10)
  --store-mbit X       Mb/s of an island to the store that all share (default: 100), --store-ms until it answers (50)

All other flags are those of echelon train: --algo sapg --num-envs 4096

tasks:
"""
LINK_FLAGS = ("--node-gb", "--node-us", "--network-gbit", "--network-us", "--store-mbit", "--store-ms")
PLAN_FLAGS = ("--gpus", "--steps", "--bench", "--rates", "--repeats", "--jitter", "--gpus-per-node", *LINK_FLAGS)
MOST_GPUS = 1_000_000


def run(arguments: list[str]) -> int:
    """Measure, predict, print."""
    if {"-h", "--help"} & set(arguments):
        print(USAGE + task_list(), end="")
        return 0

    from echelon.commands.train import split_task
    from echelon.console.flags import one_count, split_flags

    task, rest = split_task(arguments, "plan")
    own, flags = split_flags(rest, PLAN_FLAGS, f"echelon plan {task}")
    if "--gpus" not in own:
        raise UserError(f"plan needs a number of GPUs, as in echelon plan {task} --gpus 64")
    gpus, repeats = one_count(own, "--gpus", 1), one_count(own, "--repeats", 10)
    if gpus > MOST_GPUS:
        raise UserError(f"--gpus takes at most {MOST_GPUS:,}, not {gpus:,}")
    jitter, links = _number(own, "--jitter", 0.01, zero=True), _links(own)
    steps = _number(own, "--steps", 0.0, zero=False) if "--steps" in own else None
    rates, budget = _rates(task, flags, own, repeats)

    from echelon.planning.table import advice, assumptions, predictions, table

    env_steps = steps or budget
    print(f"{task}, {env_steps:,.0f} environment steps on {gpus} GPUs, {rates.env_steps:,} steps an iteration each\n")
    print(table(predictions(rates, gpus, links, jitter), env_steps))
    print(f"\n{advice(rates, gpus, links, jitter)}\n\n{assumptions(rates, gpus, links)}")
    return 0


def _links(own: dict[str, list[str]]) -> "Links":
    from echelon.console.flags import one_count
    from echelon.planning.links import Links

    default = Links()
    given = {name: name[2:].replace("-", "_") for name in LINK_FLAGS}
    values = {field: _number(own, name, getattr(default, field), zero="-us" in name) for name, field in given.items()}
    return dataclasses.replace(
        default, gpus_per_node=one_count(own, "--gpus-per-node", default.gpus_per_node), **values
    )


def _number(own: dict[str, list[str]], name: str, default: float, *, zero: bool) -> float:
    """The value of a flag that takes a number."""
    from echelon.console.flags import one_value

    if name not in own:
        return default
    word = one_value(own, name, "")
    with contextlib.suppress(ValueError):
        if 0 < float(word) < 1e30 or (zero and float(word) == 0):
            return float(word)
    raise UserError(f"{name} takes a number {'of at least' if zero else 'above'} 0, not {word!r}")


def _rates(task: str, flags: list[str], own: dict[str, list[str]], repeats: int) -> "tuple[Rates, int]":
    """The rates of one GPU, measured or from where the flags say, and the task's budget of steps."""
    from echelon.commands.train import configure, resolve_flags
    from echelon.console.flags import one_value

    source, bench = one_value(own, "--rates", ""), one_value(own, "--bench", "")
    if source not in ("", "h200"):
        raise UserError(f"--rates takes h200, not {source!r}; leave it out to measure here")
    if source and bench:
        raise UserError("--rates and --bench both say where the rates come from; leave one out")
    if bench and flags:
        raise UserError(f"{flags[0]} does not go with --bench, whose file has the settings; leave it out")
    if bench:
        from echelon.planning.rates import from_bench

        config = configure(task, [])
        return from_bench(Path(bench), config.task), config.num_iterations * config.steps_per_iteration
    if source:
        from echelon.planning.rates import published

        config = configure(task, flags)
        return published(config), config.num_iterations * config.steps_per_iteration
    resolved = resolve_flags(task, flags)
    for note in resolved.notes:
        print(note)

    from echelon.console.terminal import show_progress
    from echelon.planning.rates import measured

    budget = resolved.config.num_iterations * resolved.config.steps_per_iteration
    found = measured(resolved, repeats, show_progress)
    show_progress("")
    return found, budget
