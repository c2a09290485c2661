"""`echelon bench`: where an iteration's time goes."""

import sys
from pathlib import Path

from echelon.commands.tasks import task_list
from echelon.errors import UserError

USAGE = """\
usage: echelon bench TASK [flags]
       echelon bench --env SOURCE [flags]

Train TASK for a few iterations and print where their time goes: physics, task logic, policy, targets, gather, forward,
backward, optimizer, diagnostics, logging. Nothing is kept but the figures.

  --repeats K          iterations to time (default: 20)
  --json FILE          where to write the figures (default: bench/TASK-ALGO.json, or with the variant for ALGO)

All other flags are those of echelon train: --algo sapg --num-envs 4096 --no-capture

tasks:
"""


def run(arguments: list[str]) -> int:
    """Measure, print, write."""
    if {"-h", "--help"} & set(arguments):
        print(USAGE + task_list(), end="")
        return 0

    from echelon.commands.train import resolve_flags, split_task
    from echelon.console.flags import one_count, one_value, split_flags
    from echelon.runs.durable import require_writable

    task, rest = split_task(arguments, "bench")
    own, flags = split_flags(rest, ("--repeats", "--json"), f"echelon bench {task}")
    repeats, given = one_count(own, "--repeats", 20), one_value(own, "--json", "")
    resolved = resolve_flags(task, flags)
    for note in resolved.notes:
        print(note)
    config = resolved.config
    path = Path(given or f"bench/{config.task}-{config.method}.json")
    require_writable(path)

    from echelon.bench.measure import bench
    from echelon.bench.table import document, table

    found = bench(config, repeats, _say)
    _say("")
    print(f"{task}, {config.method}, {config.num_policies} policies, {config.num_envs} environments, {found.device}\n")
    print(table(found))
    try:
        path.write_text(document(found))
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}") from None
    print(f"Written to {path}")
    return 0


def _say(text: str) -> None:
    """One line on standard error that each text overwrites; nothing where nobody watches."""
    if sys.stderr.isatty():
        line = f"measuring: {text}" if text else ""
        print(f"\r{line:<60}", end="" if text else "\r", file=sys.stderr, flush=True)
