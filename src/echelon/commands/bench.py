"""`echelon bench`: where an iteration's time goes."""

from pathlib import Path
from typing import TYPE_CHECKING

from echelon.commands.tasks import task_list

if TYPE_CHECKING:
    from echelon.training.resolve import Resolved

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
    from echelon.console.tables import show_progress
    from echelon.ranks.joining import join
    from echelon.runs.durable import require_writable, writing

    def read() -> "tuple[Resolved, int, Path]":
        task, rest = split_task(arguments, "bench")
        own, flags = split_flags(rest, ("--repeats", "--json"), f"echelon bench {task}")
        repeats, given = one_count(own, "--repeats", 20), one_value(own, "--json", "")
        resolved = resolve_flags(task, flags, ranks)
        config = resolved.config
        path = Path(given or f"bench/{config.task}-{config.method}.json")
        if ranks.first:
            require_writable(path)
        return resolved, repeats, path

    ranks = join()
    resolved, repeats, path = ranks.attempt(read)
    config = resolved.config
    for note in resolved.notes if ranks.first else ():
        print(note)

    from echelon.bench.measure import bench
    from echelon.bench.table import document, table

    found = bench(config, repeats, show_progress if ranks.first else lambda text: None, ranks)
    ranks.leave()
    if not ranks.first:
        return 0
    show_progress("")
    task = config.source or config.task
    print(f"{task}, {config.method}, {config.num_policies} policies, {config.num_envs} environments, {found.device}\n")
    print(table(found))
    with writing(path, "choose another --json"):
        path.write_text(document(found))
    print(f"Written to {path}")
    return 0
