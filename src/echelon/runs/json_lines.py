"""JSON Lines files of a run: one object per line, each with its `iteration`.

Floats have seven significant digits, which is what the float32 numbers they come from hold. A value that is not finite
is written as null, which JSON has.
"""

import json
import math
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from io import FileIO
from pathlib import Path
from typing import Any

from echelon.errors import UserError
from echelon.runs.durable import replace_durably, writing
from echelon.runs.folder import RunFolder
from echelon.runs.untrusted import Unreadable, parse_json, read_raw_lines

Line = dict[str, Any]


def read_lines(path: Path, warn: bool = False) -> list[Line]:
    """All valid lines; none if there is no file. With `warn`, damaged lines are reported, except a last one that a kill
    cut short."""
    return [line for _, line in _scan(path, warn) if line is not None]


class LineWriter:
    """Appends to a file of lines. Those after the iteration that a run resumes from are dropped first; a new run keeps
    none."""

    def __init__(self, folder: RunFolder, name: str, completed: int = 0, warn: bool = False) -> None:
        self.path, self.name = folder.path / name, name
        self._file: FileIO | None = None
        try:
            self.last = _drop_after(self.path, completed, warn)
        except OSError as error:
            raise UserError(f"{self.path} cannot be read: {error.strerror or error}; move it away") from None
        """The last line that was kept."""

    def append(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Append lines; creates the file if needed, and its subfolder, but not the run folder."""
        with writing(self.path):
            if self._file is None:
                if "/" in self.name:
                    self.path.parent.mkdir(exist_ok=True)
                self._file = self.path.open("ab", buffering=0)
            data = memoryview("".join(json.dumps(jsonable(line, digits=7)) + "\n" for line in lines).encode())
            while data:
                data = data[self._file.write(data) or 0 :]

    def sync(self) -> None:
        """Wait until the lines are on the disk."""
        if self._file is not None:
            with writing(self.path):
                os.fsync(self._file.fileno())

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def jsonable(value: Any, digits: int = 17) -> Any:
    """Plain JSON data: numbers from tensors or NumPy scalars too, rounded to `digits`, null where not finite."""
    if isinstance(value, Mapping):
        return {name: jsonable(item, digits) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(item, digits) for item in value]
    if value is None or isinstance(value, int | str):
        return value
    number = float(value)
    return float(f"{number:.{digits}g}") if math.isfinite(number) else None


def _drop_after(path: Path, completed: int, warn: bool) -> Line | None:
    """Drop damaged lines and those after iteration `completed`; returns the last one that stays."""
    kept, last, changed = [], None, False
    for raw, line in _scan(path, warn):
        if line is not None and completed and line["iteration"] <= completed:
            kept.append(raw)
            last = line
        else:
            changed = True
    if changed:
        with writing(path):
            replace_durably(path, b"".join(kept))
    return last


def _scan(path: Path, warn: bool) -> Iterator[tuple[bytes, Line | None]]:
    """The file's lines, as they are and parsed; None where one is damaged or was cut short."""
    for number, raw in enumerate(read_raw_lines(path), start=1):
        line = _parsed(raw)
        if warn and line is None and raw.strip() and raw.endswith(b"\n"):
            warnings.warn(f"line {number} of {path} is damaged and was skipped", UserWarning, stacklevel=4)
        yield raw, line


def _parsed(raw: bytes) -> Line | None:
    try:
        line = parse_json(raw) if raw.endswith(b"\n") else None
    except Unreadable:
        return None
    whole = isinstance(line, dict) and type(line.get("iteration")) is int and 0 <= line["iteration"] < 2**53
    return line if whole else None
