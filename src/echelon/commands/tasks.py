"""`echelon tasks`: what can be trained."""

from dataclasses import dataclass

from echelon.commands.command import Command


@dataclass(frozen=True)
class Tasks(Command):
    """List the tasks that echelon train takes."""

    def run(self) -> int:
        print(task_list(), end="")
        return 0


def task_list() -> str:
    """A row per task; those that other packages register come last."""
    from echelon.console.tables import text_table
    from echelon.envs.sources import registered
    from echelon.tasks import TASKS

    rows = [(name, task.description) for name, task in TASKS.items()]
    return text_table(rows + [(name, f"from {place}") for name, place in registered().items()])
