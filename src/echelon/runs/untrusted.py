"""The one place that reads files of a run folder, which may be downloaded and so are untrusted.

Limits on size, depth, count and range keep a reader from hanging or running out of memory: what a folder claims takes
seconds and less than a gigabyte to refuse. Links that lead out of it are not followed, in reading or in writing.
"""

import dataclasses
import functools
import json
import math
import os
import stat
import typing
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from echelon.config.checks import typed

MAX_BYTES = 1 << 26
"""Largest JSON file that is read; replays with meshes are the largest."""
MAX_ITEMS = 1 << 21
"""Commas in it: once parsed, a list takes up to twenty times the memory of its text."""
MAX_UNPACKED_BYTES = 1 << 26
"""Most bytes unpacked from it."""
MAX_LINES_BYTES, MAX_LINES = 1 << 27, 200_000
"""Largest file of JSON lines; a run of a million iterations writes half of that."""
MAX_LINE_BYTES = 1 << 24
MAX_DEPTH = 64
MAX_KEYS = 10_000
"""Entries of one object: metrics of a line."""
MAX_NUMBERS = 1 << 24
"""Numbers of a table of metrics, names times lines."""
MAX_TEXT = 1000
"""Letters of a setting."""


class Unreadable(Exception):
    """A file or text that cannot be used; the message says why."""


def size_of(path: Path) -> int:
    """Bytes of a regular file; reading a pipe or a device would block or never end."""
    try:
        found = path.stat()
    except FileNotFoundError:
        raise Unreadable(f"{path.name} is missing") from None
    except OSError as error:
        raise Unreadable(f"{path.name} cannot be read: {error.strerror or error}") from None
    if not stat.S_ISREG(found.st_mode):
        raise Unreadable(f"{path.name} is not a file")
    return found.st_size


def read_bytes(path: Path, most: int = MAX_BYTES) -> bytes:
    """Read a regular file of at most `most` bytes."""
    if (size := size_of(path)) > most:
        raise Unreadable(f"{path.name} has {size:,} bytes, more than {most:,}")
    try:
        return path.read_bytes()
    except OSError as error:
        raise Unreadable(f"{path.name} cannot be read: {error.strerror or error}") from None


def read_json(path: Path) -> Any:
    """Read a JSON file."""
    data = read_bytes(path)
    try:
        return parse_json(data)
    except Unreadable as damage:
        raise Unreadable(f"{path.name} is not whole: {damage}") from None


def parse_json(data: bytes) -> Any:
    """Parse JSON of limited depth, with text that can be encoded."""
    if (items := data.count(b",")) > MAX_ITEMS:
        raise Unreadable(f"it has {items:,} entries, more than {MAX_ITEMS:,}")
    try:
        value = json.loads(data)
        flat = data.count(b"[") + data.count(b"{") <= MAX_DEPTH and items < MAX_KEYS
        if not (flat and data.isascii() and b"\\" not in data):  # a line of metrics passes every limit unread
            _require_limits(value, MAX_DEPTH)
    except RecursionError:
        raise Unreadable("it is nested too deeply") from None
    except ValueError as error:  # UnicodeError among them
        raise Unreadable(str(error).partition("\n")[0]) from None
    return value


def from_json(value: Any, hint: Any, name: str = "it", null_is_nan: bool = False) -> Any:
    """Turn JSON data into what an annotation says: a dataclass, a tuple or a mapping of values, or one value."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint) and isinstance(value, dict):
        hints = _hints(hint)
        known = {key: item for key, item in value.items() if key in hints}  # a later version may write more
        return hint(**{key: from_json(item, hints[key], key, null_is_nan) for key, item in known.items()})
    if origin is dict and isinstance(value, dict):
        return {key: from_json(item, args[1], key, null_is_nan) for key, item in value.items()}
    if origin is tuple and isinstance(value, list):
        return tuple(from_json(item, args[0], name, null_is_nan) for item in value)
    if hint is float:
        return math.nan if value is None and null_is_nan else float(typed(value, hint, name))
    return typed(value, hint, name)


_hints = functools.cache(typing.get_type_hints)


def inflate(data: bytes, size: int) -> bytes:
    """Decompress what was `size` bytes, and no more."""
    if type(size) is not int or not 0 <= size <= MAX_UNPACKED_BYTES:
        raise Unreadable(f"it says that it unpacks to {size:.3g} bytes, not to 0 to {MAX_UNPACKED_BYTES:,}")
    try:
        found = zlib.decompressobj().decompress(data, size + 1)
    except zlib.error as error:
        raise Unreadable(str(error)) from None
    if len(found) != size:
        raise Unreadable(f"it unpacks to {len(found):,} bytes or more instead of {size:,}")
    return found


def read_raw_lines(path: Path) -> Iterator[bytes]:
    """Read a text file line by line, each with its end; nothing if there is no file. Lines that are too long are cut
    into pieces, which no longer parse."""
    if not path.exists():
        return
    if (size := size_of(path)) > MAX_LINES_BYTES:
        raise Unreadable(f"{path.name} has {size:,} bytes, more than {MAX_LINES_BYTES:,}")
    with path.open("rb") as file:
        for _ in range(MAX_LINES):
            if not (raw := file.readline(MAX_LINE_BYTES)):
                return
            yield raw
    raise Unreadable(f"{path.name} has more than {MAX_LINES:,} lines")


def require_plain(value: Any) -> None:
    """Raise `Unreadable` for settings with text that is too long, or that a terminal would take for commands."""
    for text in _inside(value):
        if isinstance(text, str) and not (len(text) <= MAX_TEXT and text.isprintable()):
            raise Unreadable(f"a text in it has {len(text):,} letters, or some that cannot be printed")


def require_finite(value: Any, most: float = 1e12) -> None:
    """Raise `Unreadable` for a number that is not finite, or absurdly large."""
    for number in _inside(value):
        if isinstance(number, int | float) and not abs(number) <= most:
            raise Unreadable("a number in it is not finite, or absurdly large")


def _inside(value: Any) -> Iterator[Any]:
    """All values of nested JSON data, itself and the keys of its objects among them."""
    yield value
    for item in (*value, *value.values()) if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _inside(item)


def require_inside(folder: Path) -> None:
    """Raise `Unreadable` if a link in the folder leads out of it: others could be read, or written, through it."""
    inside = folder.resolve()
    for place, folders, files in os.walk(folder):
        for path in (os.path.join(place, name) for name in (*folders, *files)):
            if os.path.islink(path) and not Path(os.path.realpath(path)).is_relative_to(inside):
                name = Path(path).relative_to(folder)
                raise Unreadable(f"{name} is a link that leads out of the folder; put what it leads to in its place")


def _require_limits(value: Any, depth: int) -> None:
    """Raise a `ValueError` for JSON data nested too deeply, or text with lone surrogates, which nothing can write."""
    if isinstance(value, str):
        value.encode()
    elif isinstance(value, dict | list):
        if depth == 0:
            raise ValueError("it is nested too deeply")
        if isinstance(value, dict):
            if len(value) > MAX_KEYS:
                raise ValueError(f"an object has {len(value):,} entries, more than {MAX_KEYS:,}")
            value = [*value, *value.values()]
        for item in value:
            _require_limits(item, depth - 1)
