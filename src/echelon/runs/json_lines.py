"""JSON Lines files of a run: one object per line, each with its `iteration`."""

import json
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from echelon.runs.durable import replace_durably, writing


def read_lines(path: Path, warn: bool = False) -> list[dict[str, Any]]:
    """All valid lines; none if there is no file. With `warn`, damaged lines are reported, except a last one that a kill
    cut short."""
    if not path.exists():
        return []
    texts = path.read_text(errors="replace").split("\n")
    lines = []
    for number, text in enumerate(texts, start=1):
        line = _parsed(text)
        if line is not None:
            lines.append(line)
        elif warn and text.strip() and number < len(texts):
            warnings.warn(f"line {number} of {path} is damaged and was skipped", UserWarning, stacklevel=3)
    return lines


def append_lines(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    """Append lines; creates the file and its folder if needed."""
    with writing(path):
        path.parent.mkdir(exist_ok=True)
        with path.open("a") as file:
            file.writelines(_text(line) for line in lines)


def drop_lines_after(path: Path, completed: int, warn: bool = False) -> list[dict[str, Any]]:
    """Drop lines after iteration `completed`, from which the run resumes, and return the others; a new run keeps
    none."""
    kept = [line for line in read_lines(path, warn) if completed and line["iteration"] <= completed]
    text = "".join(map(_text, kept))
    if path.exists() and path.read_text(errors="replace") != text:
        with writing(path):
            replace_durably(path, text.encode())
    return kept


def _parsed(text: str) -> dict[str, Any] | None:
    """A parsed line, or None if it is damaged."""
    try:
        line: Any = json.loads(text)
    except ValueError:
        return None
    return line if isinstance(line, dict) and isinstance(line.get("iteration"), int) else None


def _text(line: Mapping[str, Any]) -> str:
    return json.dumps(line) + "\n"
