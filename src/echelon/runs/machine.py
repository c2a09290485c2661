"""The versions, source revision and hardware of a run."""

import contextlib
import os
import platform
import re
import subprocess
import sys
from datetime import datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from echelon import __version__

LIBRARIES = ("torch", "numpy", "mujoco", "mujoco-warp", "warp-lang", "gymnasium", "mjlab")
"""Packages whose version can change a result."""


def describe_session() -> dict[str, Any]:
    """The current process, for `config.json`: one start of a run, the first one or one that resumes it."""
    import torch  # slow to import, and most commands do not need it

    return {
        "started": datetime.now().astimezone().isoformat(timespec="seconds"),
        "command": list(sys.argv),
        "python": platform.python_version(),
        "versions": {"echelon": __version__} | {name: version for name in LIBRARIES if (version := _version(name))},
        "git_revision": git_revision(),
        "hardware": {
            "cpu": _cpu_model(),
            "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
            "gpu": torch.cuda.get_device_name(0) if torch.cuda.is_available() else None,
        },
    }


def _version(package: str) -> str | None:
    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version(package)


@cache  # as it was when this process imported it
def git_revision() -> str | None:
    """Commit of Echelon's source, with `+changes` if files differ from it; None if no repository tracks it, even if it
    lies inside one, as in a venv."""
    if _git("ls-files", "--error-unmatch", "__init__.py") is None:
        return None
    revision = _git("rev-parse", "HEAD")
    return f"{revision}+changes" if revision and _git("status", "--porcelain", "--", ".") else revision


def _git(*arguments: str) -> str | None:
    """The output of a git command on Echelon's source, or None if it fails or git is not installed."""
    command = ["git", "-C", str(Path(__file__).resolve().parents[1]), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _cpu_model() -> str:
    """The CPU's marketing name where the system gives one."""
    with contextlib.suppress(OSError):
        if found := re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE):
            return found[1]
    return platform.processor() or platform.machine()
