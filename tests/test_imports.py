"""`docs/architecture.md` is true: modules import only what its rules allow, and its map names every folder, and only
files that exist."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "echelon"
PARTS = sorted(path.name for path in SOURCE.iterdir() if path.name != "__pycache__" and path.suffix in ("", ".py"))

SIMULATION = {"tasks", "sim"}
PROGRAM = {"cli", "commands", "export", "training", "evaluation", "report", "viewing", "grid", "bench", "console"}
NEVER = {
    "algorithms": SIMULATION | PROGRAM | {"runs"},
    "learning": SIMULATION | PROGRAM | {"runs", "algorithms"},
    "models": SIMULATION | PROGRAM | {"runs", "algorithms", "learning", "rollout"},
    "rollout": SIMULATION | PROGRAM | {"runs", "algorithms", "learning"},
    "diagnostics": SIMULATION | PROGRAM | {"runs", "algorithms"},
    "training": {"cli", "commands", "evaluation", "report", "viewing", "grid", "bench"},
}
ONLY = {
    "report": {"runs", "algorithms", "config", "console", "errors"},
    "tasks": {"algorithms", "sim", "envs", "config", "errors", "device"},
    "sim": {"errors", "device"},
    "ranks": {"errors"},
    "envs": {"sim", "config", "errors"},
    "config": {"errors"},
    "device": set(),
    "errors": set(),
}


def imported(part: str, *, types: bool = True) -> Iterator[tuple[str, str]]:
    """Every other part that a file or folder of the package imports, with the file that does; at its top or in a
    function. Without `types`, what only a type checker imports does not count."""
    path = SOURCE / part
    for file in [path] if path.is_file() else path.rglob("*.py"):
        for node in nodes(ast.parse(file.read_text()), types):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{file} imports by a relative name"
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            for name in names:
                if name.startswith("echelon.") and name.split(".")[1] != part.removesuffix(".py"):
                    yield name.split(".")[1], str(file.relative_to(ROOT))


def nodes(tree: ast.AST, types: bool) -> Iterator[ast.AST]:
    """All of a file, with or without what stands under `if TYPE_CHECKING`."""
    for node in ast.iter_child_nodes(tree):
        if types or not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            yield node
            yield from nodes(node, types)


def test_imports_keep_to_the_rules_and_no_part_imports_one_that_imports_it() -> None:
    """Parts have an order: each imports only those below it. An import inside a function counts too."""
    names = {part: part.removesuffix(".py") for part in PARTS}
    assert [
        f"{file} imports {other}"
        for part, name in names.items()
        for other, file in imported(part)
        if other in NEVER.get(name, ()) or other not in ONLY.get(name, {other})
    ] == []
    graph = {name: {other for other, _ in imported(part, types=False)} for part, name in names.items()}
    assert graph["training"] >= {"runs", "algorithms"}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError(f"these import each other: {' <- '.join(error.args[1])}") from None


STEPS = {
    "import echelon": "torch numpy mujoco tyro",
    "main(['--help'])": "torch tyro rich numpy mujoco tensorboard",
    "assert [echelon.preset(task).task for task in echelon.tasks.names()][0] == 'AllegroHand'": "torch mujoco warp",
    "main(['train', 'Hopper', '--updat.clip', '1'])": "torch mujoco warp",
    "main(['train', 'Hopper', '--algo', 'cp0'])": "torch mujoco warp",
    "import echelon.commands.report, echelon.report.write, echelon.report.page": "torch mujoco warp",
}
"""What may be done, one after another, without importing these slow packages."""


def test_help_presets_mistakes_and_reports_import_nothing_slow() -> None:
    """So flags are read, and wrong ones answered, at once."""
    script = "import contextlib, io, sys\ndef main(words):\n  from echelon.cli import main\n"
    script += "  with contextlib.redirect_stdout(io.StringIO()): main(words)\n"
    for code, slow in STEPS.items():
        script += f"{code}\nfound = [name for name in {slow.split()} if name in sys.modules]\nassert not found, found\n"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_architecture_page_names_every_part_and_only_files_that_exist() -> None:
    names = {part.removesuffix(".py") for part in PARTS}
    assert set(NEVER) | set(ONLY) | set().union(*NEVER.values(), *ONLY.values()) <= names
    page = (ROOT / "docs" / "architecture.md").read_text()
    the_map = page.split("## The map\n")[1].split("tests/ mirrors src/")[0]
    parts = [part if part.endswith(".py") else f"{part}/" for part in PARTS if part != "__init__.py"]
    assert [part for part in parts if not re.search(rf"(?<![\w/]){re.escape(part)}", the_map)] == []
    known = {path.name for path in SOURCE.rglob("*") if path.suffix == ".py" or path.is_dir()}
    named = set(re.findall(r"\w+(?:\.py|(?=/))", the_map))
    assert {"cli.py", "learning"} <= named <= known | {"src", "echelon"}
    first = re.findall(r"^\d\. `([\w/]+\.py)`", page, re.MULTILINE)
    assert len(first) == 6
    assert [name for name in first if not (SOURCE / name).is_file()] == []
