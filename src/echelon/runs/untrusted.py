"""The one place that reads files of a run folder, which may be downloaded and so are untrusted.

Limits on size, depth and count keep a reader from hanging or running out of memory.
"""

import errno
import json
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MAX_BYTES = 1 << 28
"""Largest JSON file that is read; replays are the largest."""
MAX_LINE_BYTES = 1 << 24
MAX_LINES = 1_000_000
MAX_DEPTH = 64
MAX_KEYS = 10_000
"""Entries of one object: metrics of a line."""


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
    try:
        value = json.loads(data)
        _require_limits(value, MAX_DEPTH)
    except RecursionError:
        raise Unreadable("it is nested too deeply") from None
    except ValueError as error:  # UnicodeError among them
        raise Unreadable(str(error).partition("\n")[0]) from None
    return value


def inflate(data: bytes, size: int) -> bytes:
    """Decompress what was `size` bytes, and no more."""
    if not 0 <= size <= MAX_BYTES:
        raise Unreadable(f"{size:,} compressed bytes are more than {MAX_BYTES:,}")
    try:
        found = zlib.decompressobj().decompress(data, size + 1)
    except zlib.error as error:
        raise Unreadable(str(error)) from None
    if len(found) != size:
        raise Unreadable(f"compressed are {len(found):,} bytes or more instead of {size:,}")
    return found


def read_raw_lines(path: Path) -> Iterator[bytes]:
    """Read a text file line by line, each with its end; nothing if there is no file. Lines that are too long are cut
    into pieces, which no longer parse."""
    if not path.exists():
        return
    if not path.is_file() and not path.is_dir():
        raise OSError(errno.EINVAL, "it is not a file", str(path))
    with path.open("rb") as file:
        for _ in range(MAX_LINES):
            if not (raw := file.readline(MAX_LINE_BYTES)):
                return
            yield raw


def _require_limits(value: Any, depth: int) -> None:
    """Raise a `ValueError` for JSON data that is nested too deeply, or text with lone surrogates, which nothing can
    write again."""
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
