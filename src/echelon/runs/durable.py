"""Files that are either whole or absent, whatever moment the process or the machine dies at."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from echelon.errors import UserError


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """What the system has against writing `path`, a full disk above all, is one sentence that names it."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror or error}; make room, then resume") from error


def write_durably(path: Path, data: bytes) -> None:
    """Write a new file and wait until it is on the disk."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def replace_durably(path: Path, data: bytes) -> None:
    """Replace `path` in one step: a reader sees the old bytes or the new ones, never a part."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write_durably(temporary, data)
        os.replace(temporary, path)
    except OSError as error:
        error.filename, error.filename2 = str(path), None  # nobody asked for the temporary one
        raise
    finally:
        temporary.unlink(missing_ok=True)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make renames inside a directory outlive a power cut. Systems that cannot open directories do without."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError:
        pass
    finally:
        os.close(descriptor)


def require_writable(path: Path) -> None:
    """Refuse a file that cannot be written, before the work whose result it shall hold. Only its folder is made."""
    try:
        new = not path.exists()
        path.parent.mkdir(parents=True, exist_ok=True)
        if new or path.is_file() or path.is_dir():  # a pipe's reader would take this for the end
            path.open("ab").close()
        if new:
            path.resolve().unlink()  # what a link points to, not the link
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}; choose another --json") from None
