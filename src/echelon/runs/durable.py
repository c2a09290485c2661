"""Writing files that are complete or absent, even if the process or the machine dies meanwhile."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from echelon.errors import UserError


@contextmanager
def writing(path: Path, advice: str = "make room, then resume") -> Iterator[None]:
    """Turn an `OSError` while writing `path`, such as a full disk, into a `UserError` that ends with `advice`."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror or error}; {advice}") from error


def write_durably(path: Path, data: bytes) -> None:
    """Write a new file and wait until it is on the disk."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def replace_durably(path: Path, data: bytes) -> None:
    """Replace `path` atomically: a reader sees the old bytes or the new ones, never a part."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write_durably(temporary, data)
        os.replace(temporary, path)
    except OSError as error:
        error.filename, error.filename2 = str(path), None  # the message should name the file the caller asked for
        raise
    finally:
        temporary.unlink(missing_ok=True)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make renames inside a directory survive a power cut, on systems that can open directories."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def require_writable(path: Path) -> None:
    """Raise a `UserError` if `path` cannot be written, before the work whose result goes there. Creates its folder."""
    with writing(path, "choose another --json"):
        new = not path.exists()
        path.parent.mkdir(parents=True, exist_ok=True)
        if new or path.is_file() or path.is_dir():  # opening and closing a pipe would end it for its reader
            path.open("ab").close()
        if new:
            path.resolve().unlink()  # the target of a link, not the link
