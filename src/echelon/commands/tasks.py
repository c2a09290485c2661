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
    """A line per task."""
    from echelon.tasks import TASKS

    width = max(map(len, TASKS))
    return "".join(f"  {name:<{width}}  {TASKS[name].description}\n" for name in TASKS)
