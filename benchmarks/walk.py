"""How far one must walk through the code to follow `echelon train Hopper`: functions, files and folders on the way.

    PYTHONPATH=src python benchmarks/walk.py --json results/walk/after.json

Traces a tiny run in this process, all threads, and counts what was called in the package from the command to the end of
the run. Bodies of modules and classes, lambdas and comprehensions do not count; a file counts when a function of it was
called. The functions are kept by file, so that two revisions can be compared. `--beside` is an earlier trace.
"""

import inspect
import json
import sys
import tempfile
import threading
from collections import defaultdict
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from command import command, markdown, options

import echelon
from echelon.runs.folder import git_revision

PACKAGE = Path(echelon.__file__).parent
COMMAND = ("train", "Hopper", "--device", "cpu", "--env-steps", "30000")


def trace(words: list[str]) -> dict[str, list[str]]:
    """The functions of the package that a command calls, by file."""
    from echelon.cli import main

    seen: set[CodeType] = set()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            seen.add(frame.f_code)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        code = main(words)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    if code:
        sys.exit(code)
    found: defaultdict[str, set[str]] = defaultdict(set)
    for code in seen:
        path = Path(code.co_filename)
        if path.is_relative_to(PACKAGE) and code.co_flags & inspect.CO_OPTIMIZED and not code.co_name.startswith("<"):
            found[str(path.relative_to(PACKAGE))].add(code.co_qualname)
    return {name: sorted(found[name]) for name in sorted(found)}


def counts(functions: dict[str, list[str]]) -> dict[str, int]:
    """Functions, their files, and the folders of these within the package."""
    return {
        "functions": sum(len(names) for names in functions.values()),
        "files": len(functions),
        "folders": len({Path(name).parent for name in functions} - {Path(".")}),
    }


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--json", type=Path, help="write the counts and the functions to this file")
    parser.add_argument("--beside", type=Path, default=Path("results/walk/before.json"), help="an earlier trace")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        functions = trace([*COMMAND, "--out", f"{folder}/run"])
    found = {"command": " ".join(("echelon", *COMMAND)), "revision": (git_revision() or "")[:7], **counts(functions)}
    rows = [found]
    if args.beside.exists():
        rows.insert(0, json.loads(args.beside.read_text()))
    names = ("revision", "functions", "files", "folders")
    print(markdown(names, ([row[name] for name in names] for row in rows)))
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(found | {"by_file": functions}, indent=1) + "\n")


if __name__ == "__main__":
    command(main)
