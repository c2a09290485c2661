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
    """A line per task; those of other packages, which register them, last."""
    from echelon.envs.sources import registered
    from echelon.tasks import TASKS

    lines = {name: TASKS[name].description for name in TASKS}
    lines |= {name: f"from {place}" for name, place in registered().items()}
    width = max(map(len, lines))
    return "".join(f"  {name:<{width}}  {text}\n" for name, text in lines.items())
