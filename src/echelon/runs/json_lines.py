"""Files that grow by lines of JSON while a run trains: each line has its `iteration`."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from echelon.runs.durable import replace_durably


def read_lines(path: Path) -> list[dict[str, Any]]:
    """All lines, none if there is no file; one that a kill cut short is left out."""
    if not path.exists():
        return []
    lines = []
    for text in path.read_text().splitlines():
        try:
            lines.append(json.loads(text))
        except ValueError:
            continue
    return lines


def append_lines(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    """Add lines, and the file's folder where it is missing."""
    path.parent.mkdir(exist_ok=True)
    with path.open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def drop_lines_after(path: Path, completed: int) -> None:
    """Keep what belongs to the iterations that a run resumes after; a run that starts anew keeps nothing."""
    if path.exists():
        kept = [line for line in read_lines(path) if completed and line["iteration"] <= completed]
        replace_durably(path, "".join(json.dumps(line) + "\n" for line in kept).encode())
