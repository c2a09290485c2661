"""`echelon new-task`: the skeleton of a task of one's own."""

import re
from pathlib import Path

from echelon.errors import UserError
from echelon.runs.durable import writing

USAGE = """\
usage: echelon new-task NAME [FOLDER]

Write NAME's skeleton as a folder into FOLDER, here unless given: its settings, the task and a MuJoCo model, in the
shape of the built-in tasks. It trains as it is. Put your model in place of the other, then say what is seen, what is
rewarded, and where an episode starts.
"""

SKELETON = Path(__file__).parents[1] / "tasks" / "_skeleton"


def renamed(text: str, name: str, module: str) -> str:
    """The skeleton with the user's names."""
    settings, base = (
        "settings import SkeletonConfig\n",
        "from echelon.tasks.mujoco_task import MujocoTask, StartState\n",
    )
    text = text.replace(f"from echelon.tasks._skeleton.{settings}{base}", f"{base}\nfrom .{settings}")
    return text.replace("Skeleton", name).replace("skeleton", module)


def run(arguments: list[str]) -> int:
    """Write the task's folder, and say what to type next."""
    if not arguments or {"-h", "--help"} & set(arguments):
        print(USAGE, end="")
        return 0
    name, folder = arguments[0], Path(arguments[1] if len(arguments) > 1 else ".")
    if not re.fullmatch(r"[A-Z][A-Za-z0-9]*", name):
        raise UserError(f"a task is named like a class, as in echelon new-task ReachArm, not {name}")
    if len(arguments) > 2:
        raise UserError(f"new-task takes a name and a folder, not {len(arguments)} words")
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
    return 0
