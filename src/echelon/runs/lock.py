"""One trainer per run folder. The system releases the lock when the process ends, however it ends."""

import errno
import os
from pathlib import Path

from filelock import FileLock, Timeout

from echelon.errors import UserError

_WITHOUT_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)
"""Errors of a file system that cannot lock: training continues without a lock."""
_held: list[tuple[FileLock, os.stat_result]] = []
"""Locks of this process, and the files they were taken on, which may have been moved since."""


class Held(UserError):
    """Another process trains in the folder."""


def hold(folder: Path) -> None:
    """Claim `folder` until this process ends. Claiming it again is fine: one process trains one run at a time."""
    path = folder.resolve() / ".lock"
    if still_ours(folder):
        return
    lock = _lock(path)
    try:
        lock.acquire()
    except Timeout:
        raise Held(
            f"{folder} is being trained by another process; wait for it, or pass --out with another folder"
        ) from None
    except OSError as error:
        if error.errno not in _WITHOUT_LOCKS:
            raise
        path.touch()
    _held.append((lock, path.stat()))


def is_held(folder: Path) -> bool:
    """Whether another process trains in `folder`."""
    path = folder.resolve() / ".lock"
    if not path.exists() or still_ours(folder):
        return False
    try:
        with _lock(path):
            return False
    except Timeout:
        return True
    except OSError:
        return False


def still_ours(folder: Path) -> bool:
    """Whether this process claimed the folder that is at this path now: not one that was moved away or deleted."""
    try:
        found = (folder / ".lock").stat()
    except OSError:
        return False
    return any(os.path.samestat(claimed, found) for _, claimed in _held)


def _lock(path: Path) -> FileLock:
    return FileLock(path, timeout=0, thread_local=False, fallback_to_soft=False)
