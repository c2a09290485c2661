"""The folder of a task, or of a family of tasks: `settings.py` without torch, `task.py`, and the MJCF of its scenes.

`settings.py` has `TASKS`, a `TaskInfo` per task; `task.py` has a class of the same name for each. Built-in tasks and
those that `echelon new-task` writes have the same shape.
"""

from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from echelon.config.schema import TrainConfig


@dataclass(frozen=True)
class TaskInfo:
    """A task, described without importing it."""

    description: str
    """One line for `echelon tasks`."""
    preset: TrainConfig
    """Settings to start from; `task` is the task's name, `env` its own settings."""
    best: tuple[str, ...] = ()
    """Variants of the preset that trained best, which are the default."""
    folder: str = ""
    """Package of the task; set by `tasks_in`."""

    @property
    def task(self) -> Any:
        """The task's class."""
        return getattr(import_module(f"{self.folder}.task"), self.preset.task)


def tasks_in(folder: str) -> dict[str, TaskInfo]:
    """Tasks of a package by name; empty for a package or module without `TASKS` in its `settings`."""
    try:
        if find_spec(f"{folder}.settings") is None:
            return {}
    except ModuleNotFoundError as error:
        if error.name is not None and not f"{folder}.settings".startswith(error.name):
            raise
        return {}
    found = getattr(import_module(f"{folder}.settings"), "TASKS", ())
    return {info.preset.task: replace(info, folder=folder) for info in found}
