"""A lock that allows one trainer per run folder. The system releases it when the process ends, however it ends."""

import os
import sys
from pathlib import Path
from typing import IO

from echelon.errors import UserError

_held: dict[Path, IO[str]] = {}
"""Open lock files of this process. A lock belongs to the process, and is released when any handle of the file is
closed: so these stay open until the process ends, and none of the files is opened a second time."""


class Held(UserError):
    """Another process trains in the folder."""


def hold(folder: Path) -> None:
    """Claim `folder` for this process. Claiming it again is fine: one process trains one run at a time."""
    if sys.platform == "win32":  # It has no fcntl, so two trainers in one folder are not noticed there.
        return
    import fcntl

    path = folder.resolve() / ".lock"
    if _is_ours(path):
        return
    handle = path.open("a")
    try:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        handle.close()
        raise Held(
            f"{folder} is being trained by another process; wait for it, or pass --out with another folder"
        ) from None
    except OSError:
        pass  # A file system without locks: train without one.
    _held[path] = handle


def is_held(folder: Path) -> bool:
    """Whether another process trains in `folder`. Does not take the lock."""
    path = folder.resolve() / ".lock"
    if sys.platform == "win32" or not path.exists() or _is_ours(path):
        return False
    import fcntl

    with path.open("a") as handle:
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            return True
        except OSError:
            return False
    return False


def still_ours(folder: Path) -> bool:
    """Whether the folder that this process claimed is still where it was: not moved, deleted or made anew."""
    if sys.platform == "win32":
        return True
    try:
        found = (folder / ".lock").stat()
    except OSError:
        return False
    return any(os.path.samestat(os.fstat(handle.fileno()), found) for handle in _held.values())


def _is_ours(path: Path) -> bool:
    """Whether this process holds the lock of the file now at `path`, and not of a deleted one of that name."""
    return path in _held and path.exists() and os.path.samestat(os.fstat(_held[path].fileno()), path.stat())
