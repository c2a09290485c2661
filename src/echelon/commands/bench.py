"""`echelon bench`: where an iteration's time goes."""

import sys
from dataclasses import dataclass
from pathlib import Path

from echelon.commands.tasks import task_list
from echelon.errors import UserError

USAGE = """\
usage: echelon bench TASK [flags]

Train TASK for a few iterations and print where their time goes: physics, task logic, policy, targets, gather, forward,
backward, optimizer, diagnostics, logging. Nothing is kept but the figures.

  --repeats K          iterations to time (default: 20)
  --json FILE          where to write the figures (default: bench/TASK-ALGO.json, or with the variant for ALGO)

All other flags are those of echelon train: --algo sapg --num-envs 4096 --no-capture

tasks:
"""


@dataclass(frozen=True)
class Order:
    """What was asked for besides training."""

    repeats: int
    json: Path | None
    flags: list[str]
    """For `echelon train`."""


def run(arguments: list[str]) -> int:
    """Measure, print, write."""
    if {"-h", "--help"} & set(arguments):
        print(USAGE + task_list(), end="")
        return 0
    if not arguments:
        raise UserError("bench needs a task, as in echelon bench CartpoleSwingup; echelon bench --help lists them")
    task, *rest = arguments
    if task.startswith("-"):
        raise UserError(f"the task comes first, as in echelon bench CartpoleSwingup {task}")
    order = read_order(rest)

    from echelon.commands.train import resolve_flags
    from echelon.runs.durable import require_writable

    resolved = resolve_flags(task, order.flags)
    for note in resolved.notes:
        print(note)
    config = resolved.config
    path = order.json or Path("bench") / f"{task}-{config.method}.json"
    require_writable(path)

    from echelon.bench.measure import bench
    from echelon.bench.table import document, table

    found = bench(config, order.repeats, _say)
    _say("")
    print(f"{task}, {config.method}, {config.num_policies} policies, {config.num_envs} environments, {found.device}\n")
    print(table(found))
    try:
        path.write_text(document(found))
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}") from None
    print(f"Written to {path}")
    return 0


def read_order(arguments: list[str]) -> Order:
    """Split the flags of the bench from those of training."""
    own = {"--repeats": "20", "--json": ""}
    flags: list[str] = []
    waiting = list(arguments)
    while waiting:
        word = waiting.pop(0)
        name, attached, value = word.partition("=")
        if name not in own:
            flags.append(word)
            continue
        if not attached and (not waiting or waiting[0].startswith("-")):
            raise UserError(f"{name} needs a value")
        own[name] = value if attached else waiting.pop(0)
    repeats = own["--repeats"]
    if not repeats.isdecimal() or int(repeats) < 1:
        raise UserError(f"--repeats takes a whole number of at least 1, not {repeats!r}")
    return Order(int(repeats), Path(own["--json"]) if own["--json"] else None, flags)


def _say(text: str) -> None:
    """One line on standard error that each text overwrites; nothing where nobody watches."""
    if sys.stderr.isatty():
        line = f"measuring: {text}" if text else ""
        print(f"\r{line:<60}", end="" if text else "\r", file=sys.stderr, flush=True)
