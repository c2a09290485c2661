"""`echelon new-task`: the skeleton of a task of one's own."""

import re
from pathlib import Path

from echelon.errors import UserError
from echelon.runs.durable import writing

USAGE = """\
usage: echelon new-task NAME [FOLDER]

Write NAME's skeleton into FOLDER, here unless given: a Python file with the task and a MuJoCo model. Both train as they
are. Put your model in place of the other, then say what is seen, what is rewarded, and where an episode starts.
"""


NOTE = "\n\n`echelon new-task NAME` writes this file under that name, for you to change.\n"
"""What the skeleton says of itself, and a task made of it does not."""


def renamed(text: str, name: str, module: str) -> str:
    """The skeleton with the user's names."""
    return text.replace(NOTE, "").replace("Skeleton", name).replace("skeleton.xml", f"{module}.xml")


def run(arguments: list[str]) -> int:
    """Write two files, and say what to type next."""
    if not arguments or {"-h", "--help"} & set(arguments):
        print(USAGE, end="")
        return 0
    name, folder = arguments[0], Path(arguments[1] if len(arguments) > 1 else ".")
    if not re.fullmatch(r"[A-Z][A-Za-z0-9]*", name):
        raise UserError(f"a task is named like a class, as in echelon new-task ReachArm, not {name}")
    if len(arguments) > 2:
        raise UserError(f"new-task takes a name and a folder, not {len(arguments)} words")
    module = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    source = Path(__file__).parents[1] / "tasks"
    files = {folder / f"{module}{ending}": (source / f"skeleton{ending}").read_text() for ending in (".py", ".xml")}
    for path in files:
        if path.exists():
            raise UserError(f"{path} exists already; choose another name or folder")
    with writing(folder, "choose another folder"):
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in files.items():
            path.write_text(renamed(text, name, module))
    print(f"Written: {' and '.join(map(str, files))}. Next{'' if str(folder) == '.' else f', in {folder}'}:")
    print(f"  try it out  echelon env check {module}:{name}")
    print(f"  train it    echelon train --env {module}:{name}")
    return 0
