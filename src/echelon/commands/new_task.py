"""`echelon new-task`: write the skeleton of a task of your own."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from echelon.commands.command import Command, place
from echelon.errors import UserError
from echelon.runs.durable import writing

SKELETON = Path(__file__).parents[1] / "tasks" / "_skeleton"


def renamed(text: str, name: str, module: str) -> str:
    """The skeleton with the user's names."""
    settings = "settings import SkeletonConfig\n"
    base = "from echelon.tasks.mujoco_task import MujocoTask, StartState\n"
    text = text.replace(f"from echelon.tasks._skeleton.{settings}{base}", f"{base}\nfrom .{settings}")
    return text.replace("Skeleton", name).replace("skeleton", module)


@dataclass(frozen=True)
class NewTask(Command):
    """Write the skeleton of a task as a folder: its settings, the task and a MuJoCo model, in the shape of the built-in
    tasks. It trains as it is. Put your model in place of the other, then say what is seen, what is rewarded, and where
    an episode starts."""

    name: Annotated[tyro.conf.Positional[str], place("NAME")]
    """Name of the task, like a class: ReachArm."""
    folder: Annotated[tyro.conf.Positional[str], place("[FOLDER]")] = "."
    """Where to write the task's folder; by default here."""

    def run(self) -> None:
        name, folder = self.name, Path(self.folder)
        if not re.fullmatch(r"[A-Z][A-Za-z0-9]*", name):
            raise UserError(f"a task is named like a class, as in echelon new-task ReachArm, not {name}")
        module = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
        task = folder / module
        if task.exists():
            raise UserError(f"{task} exists already; choose another name or folder")
        with writing(folder, "choose another folder"):
            task.mkdir(parents=True)
            for part in ("__init__.py", "settings.py", "task.py", "skeleton.xml"):
                text = renamed((SKELETON / part).read_text(), name, module)
                (task / part.replace("skeleton", module)).write_text(text)
        where = "" if str(folder) == "." else f", in {folder}"
        print(f"Written: settings.py, task.py and {module}.xml in {task}. Next{where}:")
        print(f"  try it out  echelon env check {module}:{name}")
        print(f"  train it    echelon train --env {module}:{name}")
