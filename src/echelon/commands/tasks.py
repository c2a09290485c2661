"""`echelon tasks`: what can be trained."""

import shlex

from echelon.errors import UserError


def run(arguments: list[str]) -> int:
    """List the tasks."""
    if arguments[:1] in (["-h"], ["--help"]):
        print("usage: echelon tasks\n\nList the tasks that echelon train takes.")
        return 0
    if arguments:
        raise UserError(f"echelon tasks takes no arguments, but got {shlex.join(arguments)}")
    print(task_list(), end="")
    return 0


def task_list() -> str:
    """A row per task; those that other packages register come last."""
    from echelon.console.tables import text_table
    from echelon.envs.sources import registered
    from echelon.tasks import TASKS

    rows = [(name, task.description) for name, task in TASKS.items()]
    return text_table(rows + [(name, f"from {place}") for name, place in registered().items()])
