"""`echelon tasks` and `echelon variants`: what can be trained, and named changes of settings."""

from dataclasses import dataclass

from echelon.algorithms.variants import VARIANTS
from echelon.commands.command import Command
from echelon.console.wording import text_table
from echelon.tasks import TASKS


@dataclass(frozen=True)
class Tasks(Command):
    """List the tasks that echelon train takes."""

    def run(self) -> None:
        print(task_list(), end="")


@dataclass(frozen=True)
class Variants(Command):
    """List the variants that echelon train TASK --variant and echelon compare --variants take. Several follow one
    another: --variant no_adversary entropy_off, or in a comparison --variants cpo no_adversary+entropy_off"""

    def run(self) -> None:
        print(text_table((name, variant.description) for name, variant in VARIANTS.items()), end="")


def task_list() -> str:
    """A row per task; those that other packages register come last."""
    from echelon.envs.sources import registered

    rows = [(name, task.description) for name, task in TASKS.items()]
    return text_table(rows + [(name, f"from {place}") for name, place in registered().items()])
