"""The run folder: its name is the run's name, and running the same command on it again resumes it.

config.json      settings, and for every start: time, command, versions, revision, hardware
metrics.jsonl    a line per iteration, thinned in a long run
checkpoints/     see `echelon.runs.checkpoint`
diagnostics/     KL matrices over time
population/      who copied whom, in a run of PBT
tensorboard/
wandb/           with --wandb
replay/          recorded episodes, and films of them
evaluation.json  what `echelon evaluate` found last, of the newest checkpoint; evaluation-iteration-50.json of another
evaluations.jsonl, films/  what --evaluate-every and --film-every found and showed
pruned.txt       why a sweep stopped it early
"""

import errno
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from echelon import __version__
from echelon.config import TrainConfig, to_dict
from echelon.errors import UserError, closest
from echelon.runs.changes import differences
from echelon.runs.durable import replace_durably, writing
from echelon.runs.untrusted import Unreadable, read_json, require_inside, require_plain
from echelon.tasks import built_in, stored_config

CONFIG, PRUNED = "config.json", "pruned.txt"
LIBRARIES = ("torch", "numpy", "mujoco", "mujoco-warp", "warp-lang", "gymnasium", "mjlab")
"""Packages whose version can change a result."""
_held: list[tuple[FileLock, os.stat_result]] = []
"""Locks of this process, and the files they were taken on, which may have been moved since."""


class Held(UserError):
    """Another process trains in the folder."""


@dataclass(frozen=True)
class RunFolder:
    """A folder with a complete `config.json`."""

    path: Path
    config: TrainConfig
    shown: bool = field(default=True, compare=False)
    """Whether its policies can be watched, as far as is known."""
    before: bytes | None = field(default=None, compare=False, repr=False)
    """What `config.json` held before this process resumed the run."""

    @property
    def name(self) -> str:
        """The run's name, as text: that of a folder may be any bytes."""
        return os.fsencode(self.path.resolve().name).decode(errors="backslashreplace")

    @property
    def source(self) -> str:
        """The task as commands name it; empty where the run does not say how its environment is made."""
        return self.config.source or (self.config.task if built_in(self.config) else "")

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def evaluation(self) -> Path:
        return self.path / "evaluation.json"

    @staticmethod
    def create_or_resume(config: TrainConfig, colour: int | None = None, *, change: bool = False) -> "RunFolder":
        """Open the folder that `config` names, new or as it was left, lock it and write `config.json`. `colour` is the
        algorithm's place in the palette of reports. `change` allows and records settings other than the stored ones."""
        path = Path(config.out) if config.out else Path("runs") / f"{config.task}-{config.method}-s{config.seed}"
        with writing(path, "choose another folder with --out"):
            exists = (path / CONFIG).exists()
            if path.exists() and not path.is_dir():
                raise UserError(f"{path} is a file, not a run folder; choose another folder with --out")
            # A start that was killed before its config was whole leaves only hidden files.
            if not exists and path.is_dir() and any(not entry.name.startswith(".") for entry in path.iterdir()):
                told = f"{path} is not empty and not a run (it has no {CONFIG})"
                raise UserError(f"{told}; choose another folder with --out")
            if exists:
                RunFolder.open(path)  # a link that leads out of it is found before anything is written
            path.mkdir(parents=True, exist_ok=True)
            hold(path)
            written = tuple(f".{name}." for name in (CONFIG, "metrics.jsonl", "kl.jsonl", "genealogy.jsonl"))
            for file in path.rglob(".*.tmp"):  # which a kill may leave
                if file.name.startswith(written):
                    file.unlink(missing_ok=True)
            session = describe_session()
            document: dict[str, Any] = {"created": session["started"], "config": None, "saved": False, "sessions": []}
            held = (path / CONFIG).read_bytes() if exists else None
            if exists:
                before, document = read_config(path)
                if config.out is None and None not in (config.source, before.source) and config.source != before.source:
                    raise UserError(
                        f"{path} holds a run of {before.source}, not of {config.source}; choose another folder with "
                        f"--out, or resume it there with --out {path}"
                    )
                document["changes"] += RunFolder(path, before).require_same(config, change=change)
            document["config"], document["colour"] = to_dict(config), colour
            document["sessions"].append(session)
            replace_durably(path / CONFIG, json.dumps(document, indent=2).encode())
        return RunFolder(path, config, before=held)

    def discard(self) -> None:
        """Undo a start that failed: remove the folder if nothing but that start is in it, so that no iteration was
        logged, or else restore its settings."""
        with suppress(OSError):
            started = {CONFIG, ".lock", self.metrics.name, "diagnostics", "tensorboard"}
            if {file.name for file in self.path.iterdir()} <= started and not self.has_metrics:
                shutil.rmtree(self.path)
            elif self.before is not None:
                replace_durably(self.path / CONFIG, self.before)

    def with_config(self, config: TrainConfig) -> "RunFolder":
        """Store settings that were completed while the run was built."""
        self._store(config=to_dict(config))
        return RunFolder(self.path, config)

    def with_view(self, shown: bool) -> "RunFolder":
        """Store whether its policies can be watched."""
        self._store(shown=shown)
        return replace(self, shown=shown)

    def note_saved(self, saved: bool = True) -> None:
        """Remember whether there was a checkpoint: without it, what was logged must not be started over."""
        self._store(saved=saved)

    @property
    def lost_checkpoints(self) -> bool:
        """Whether iterations were logged and a checkpoint was saved. A run killed before that has lost none."""
        return self.has_metrics and read_config(self.path)[1].get("saved") is not False

    def _store(self, **changes: Any) -> None:
        """Change parts of `config.json`."""
        document = read_config(self.path)[1] | changes
        with writing(self.path / CONFIG):
            replace_durably(self.path / CONFIG, json.dumps(document, indent=2).encode())

    def require_same(self, config: TrainConfig, *, change: bool = False) -> list[dict[str, Any]]:
        """Raise a `UserError` where `config` describes another run than this one, if anything was learned in it; with
        `change`, what it changes. A run that could not be built may be started with other settings."""
        begun = self.has_metrics or self.checkpoints.exists()
        return differences(self.path, self.config, config, change) if begun else []

    def take_changes(self, iteration: int) -> list[dict[str, Any]]:
        """All recorded changes of settings; new ones get this iteration as their start."""
        stored = read_config(self.path)[1]["changes"]
        changes = [x if isinstance(x["iteration"], int) else x | {"iteration": iteration} for x in stored]
        if changes != stored:
            self._store(changes=changes)
        return changes

    @property
    def has_metrics(self) -> bool:
        """Whether an iteration was logged."""
        return self.metrics.exists() and self.metrics.stat().st_size > 0

    @staticmethod
    def open(path: str | Path) -> "RunFolder":
        """An existing run, to be read."""
        path, meant = Path(path), None
        try:
            exists = path.exists()
            if not exists and (name := closest(path.name, [run.name for run in _runs_in(path.parent)])):
                meant = path.parent / name
        except OSError:  # a name that is too long
            exists = False
        if exists and (path / CONFIG).is_file():
            try:
                require_inside(path)
            except Unreadable as found:
                raise UserError(f"{path} cannot be used: {found}") from None
            config, document = read_config(path)
            return RunFolder(path, config, document["shown"])
        meant = next(iter(_runs_in(path)), None) if exists else meant
        sentence = f"{path} is not a run folder: it has no {CONFIG}" if exists else f"there is no run folder {path}"
        raise UserError(sentence + (f"; did you mean {meant}?" if meant else ""))


def _runs_in(path: Path) -> list[Path]:
    return sorted(entry for entry in path.iterdir() if (entry / CONFIG).is_file()) if path.is_dir() else []


def read_config(path: Path, name: str | None = None) -> tuple[TrainConfig, dict[str, Any]]:
    """Read `config.json`: the settings, and the whole document, in which the parts that others read are made sound.
    `name` is what a `UserError` calls the file; its path unless given."""
    name = name or str(path / CONFIG)
    try:
        document = read_json(path / CONFIG)
        stored = document.get("config") if isinstance(document, dict) else None
        require_plain(stored)
    except Unreadable as damage:
        raise UserError(f"{name} cannot be read ({damage}); restore it or choose another folder") from None
    if not isinstance(stored, dict) or not isinstance(stored.get("task"), str):
        raise UserError(f"{name} was not written by echelon; restore it or choose another folder")
    try:
        config = stored_config(stored)
        config.env.check()
        if config.policies is None:
            raise UserError("it has no number of policies")
    except UserError as error:
        raise UserError(f"{name} cannot be used: {error}") from None
    colour = document.get("colour")
    sessions, changes = (
        [one for one in found if isinstance(one, dict)] if isinstance(found := document.get(name), list) else []
        for name in ("sessions", "changes")
    )
    return config, document | {
        "sessions": sessions,
        "changes": [one for one in changes if _is_change(one)],
        "colour": colour if isinstance(colour, int) else None,
        "shown": document.get("shown") is not False,
    }


def _is_change(found: dict[str, Any]) -> bool:
    try:
        require_plain(found)
    except Unreadable:
        return False
    texts = all(isinstance(found.get(name), str) for name in ("setting", "before", "after"))
    return texts and type(found.get("iteration", "")) in (int, type(None))


def hold(folder: Path) -> None:
    """Claim `folder` until this process ends, however it ends; claiming it again is fine. One process trains in it."""
    if still_ours(folder):
        return
    path, lock = _lock(folder)
    try:
        lock.acquire()
    except Timeout:
        told = f"{folder} is being trained by another process"
        raise Held(f"{told}; wait for it, or pass --out with another folder") from None
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP):  # a file system that cannot lock
            raise
        path.touch()
    _held.append((lock, path.stat()))


def is_held(folder: Path) -> bool:
    """Whether another process trains in `folder`."""
    path, lock = _lock(folder)
    if not path.exists() or still_ours(folder):
        return False
    try:
        with lock:
            return False
    except OSError as error:
        return isinstance(error, Timeout)


def still_ours(folder: Path) -> bool:
    """Whether this process claimed the folder that is at this path now: not one that was moved away or deleted."""
    try:
        found = (folder / ".lock").stat()
    except OSError:
        return False
    return any(os.path.samestat(claimed, found) for _, claimed in _held)


def _lock(folder: Path) -> tuple[Path, FileLock]:
    path = folder.resolve() / ".lock"
    return path, FileLock(path, timeout=0, thread_local=False, fallback_to_soft=False)


def describe_session() -> dict[str, Any]:
    """The current process, for `config.json`: one start of a run, the first one or one that resumes it."""
    import torch  # slow to import, and most commands do not need it

    versions, cpu = {"echelon": __version__}, None
    for name in LIBRARIES:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    with suppress(OSError):
        cpu = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return {
        "started": datetime.now().astimezone().isoformat(timespec="seconds"),
        "command": list(sys.argv),
        "python": platform.python_version(),
        "versions": versions,
        "git_revision": git_revision(),
        "hardware": {
            "cpu": cpu[1] if cpu else platform.processor() or platform.machine(),
            "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
            "gpu": torch.cuda.get_device_name(0) if torch.cuda.is_available() else None,
        },
    }


@cache  # as it was when this process imported it
def git_revision() -> str | None:
    """Commit of Echelon's source, with `+changes` if files differ from it; None if no repository tracks it, even if it
    lies inside one, as in a venv."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(Path(__file__).resolve().parents[1]), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", "__init__.py")
        return git("rev-parse", "HEAD") + ("+changes" if git("status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.SubprocessError):  # no repository, or no git
        return None
