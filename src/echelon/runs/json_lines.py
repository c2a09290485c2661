"""JSON Lines files of a run: one object per line, each with its `iteration`.

Floats have seven significant digits, which is what the float32 numbers they come from hold. A value that is not finite
is written as null, which JSON has.
"""

import json
import math
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from io import FileIO
from pathlib import Path
from typing import Any

from echelon.errors import UserError
from echelon.runs.durable import replace_durably, writing
from echelon.runs.folder import RunFolder

Line = dict[str, Any]


def read_lines(path: Path, warn: bool = False) -> list[Line]:
    """All valid lines; none if there is no file. With `warn`, damaged lines are reported, except a last one that a kill
    cut short."""
    return [line for _, line in scan(path, warn) if line is not None]


class LineWriter:
    """Appends to a file of lines. Those after the iteration that a run resumes from are dropped first; a new run keeps
    none."""

    def __init__(self, folder: RunFolder, name: str, completed: int = 0, warn: bool = False) -> None:
        self.path, self.name = folder.path / name, name
        self._file: FileIO | None = None
        try:
            self.last = drop_lines_after(self.path, completed, warn)
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
            data = memoryview("".join(map(_text, lines)).encode())
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


def drop_lines_after(path: Path, completed: int, warn: bool = False) -> Line | None:
    """Drop damaged lines and those after iteration `completed`; returns the last one that stays."""
    kept, last, changed = [], None, False
    for raw, line in scan(path, warn):
        if line is not None and completed and line["iteration"] <= completed:
            kept.append(raw)
            last = line
        else:
            changed = True
    if changed:
        with writing(path):
            replace_durably(path, b"".join(kept))
    return last


def _text(line: Mapping[str, Any]) -> str:
    """A line as it is stored."""
    return json.dumps(plain(line)) + "\n"


def plain(value: Any) -> Any:
    """Plain JSON data: numbers from tensors or NumPy scalars too, floats of seven digits, null where not finite."""
    if isinstance(value, Mapping):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if value is None or isinstance(value, int | str):
        return value
    number = float(value)
    return float(f"{number:.7g}") if math.isfinite(number) else None


def finite(value: Any) -> Any:
    """Plain data with None in place of NaN and infinities, which JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    return [finite(item) for item in value] if isinstance(value, list | tuple) else value


def parse_line(raw: bytes) -> Line | None:
    """A parsed line, or None if it is damaged or was cut short."""
    try:
        line: Any = json.loads(raw) if raw.endswith(b"\n") else None
    except (ValueError, RecursionError):
        return None
    whole = isinstance(line, dict) and isinstance(line.get("iteration"), int)
    return line if whole and not isinstance(line["iteration"], bool) and 0 <= line["iteration"] < 2**53 else None


def scan(path: Path, warn: bool = False, parse: Callable[[bytes], Any] = parse_line) -> Iterator[tuple[bytes, Any]]:
    """The file's lines, as they are and parsed; None where one is damaged."""
    if not path.exists():
        return
    with path.open("rb") as file:
        for number, raw in enumerate(file, start=1):
            line = parse(raw)
            if warn and line is None and raw.strip() and raw.endswith(b"\n"):
                warnings.warn(f"line {number} of {path} is damaged and was skipped", UserWarning, stacklevel=4)
            yield raw, line
