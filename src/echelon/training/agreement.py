"""Before ranks train together: all must run the same code with the same settings, each on a GPU of its own, and write
into one folder."""

import hashlib
import os
import secrets
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import echelon
from echelon.config import TrainConfig
from echelon.config.checks import settings_of
from echelon.errors import UserError
from echelon.ranks import Ranks
from echelon.runs.folder import RunFolder

MARK = ".ranks-"
PATIENCE_S = 10.0
"""How long to wait until a file of one machine is seen by the others."""


@dataclass(frozen=True)
class Facts:
    """What ranks compare before they train."""

    host: str
    code: str
    """Checksum of the package."""
    torch: str
    settings: dict[str, Any]
    device: str
    gpu: str
    """UUID, which no other GPU has; empty on a CPU."""


def require_alike(ranks: Ranks, config: TrainConfig, device: torch.device) -> None:
    """Raise a `UserError` on all ranks where one of them is not like rank 0."""
    if ranks.size > 1 and (problem := difference(ranks.gather(_facts(config, device)))):
        raise ranks.said_once(UserError(problem))


def _facts(config: TrainConfig, device: torch.device) -> Facts:
    gpu = str(torch.cuda.get_device_properties(device).uuid) if device.type == "cuda" else ""
    return Facts(socket.gethostname(), _code(), torch.__version__, settings_of(config), device.type, gpu)


def _code() -> str:
    digest, root = hashlib.sha256(), Path(echelon.__file__).parent
    for file in sorted(root.rglob("*.py")):
        digest.update(str(file.relative_to(root)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def difference(facts: Sequence[Facts]) -> str | None:
    """The first difference between a rank and rank 0, or a GPU that two ranks share, in words; None without one."""
    for rank, found in enumerate(facts):
        whose, first = f"rank {rank} (on {found.host})", facts[0]
        if found.device != first.device:
            where = "a GPU" if found.device == "cuda" else "no GPU"
            return f"{whose} has {where}, unlike rank 0 (on {first.host}); start on GPUs only, or with --device cpu"
        if found.code != first.code:
            return f"{whose} has another version of Echelon than rank 0 (on {first.host}); install the same everywhere"
        if found.torch != first.torch:
            return f"{whose} has torch {found.torch}, rank 0 has {first.torch}; install the same everywhere"
        for name in {**first.settings, **found.settings}:
            ours, theirs = first.settings.get(name), found.settings.get(name)
            if ours != theirs:
                return f"{name} is {theirs} on {whose} but {ours} on rank 0; start all ranks with the same command"
        twin = next((other for other in range(rank) if found.gpu and facts[other].gpu == found.gpu), None)
        if twin is not None:
            return f"{whose} has no GPU of its own: rank {twin} has the same; start one process for each GPU"
    return None


def share_folder(ranks: Ranks, config: TrainConfig, colour: int | None, *, change: bool = False) -> RunFolder:
    """The run folder, which rank 0 makes or resumes, and which all must see."""
    made = ranks.attempt(lambda: RunFolder.create_or_resume(config, colour, change=change) if ranks.first else None)
    folder = ranks.broadcast(made)
    assert folder is not None
    if ranks.size > 1:
        _require_shared(ranks, folder)
    return folder


def _require_shared(ranks: Ranks, folder: RunFolder) -> None:
    mark = folder.path / f"{MARK}{ranks.broadcast(secrets.token_hex(8))}"
    if ranks.first:
        for old in folder.path.glob(f"{MARK}*"):  # of a start that was killed here
            old.unlink(missing_ok=True)
        mark.touch()
    ranks.broadcast(None)  # from here on the mark exists
    blind = [rank for rank, sees in enumerate(ranks.gather(_appears(mark))) if not sees]
    hosts = ranks.gather(socket.gethostname())
    if ranks.first:
        mark.unlink(missing_ok=True)
    if blind:
        raise ranks.said_once(
            UserError(
                f"{folder.path} of rank 0 (on {hosts[0]}) is not there for rank {blind[0]} (on {hosts[blind[0]]}); "
                "pass --out with a folder on a file system that all of them share"
            )
        )


def _appears(path: Path) -> bool:
    """Whether a file appears within `PATIENCE_S`: network file systems are slow to show new files."""
    deadline = time.monotonic() + PATIENCE_S
    while not path.exists():
        if time.monotonic() > deadline:
            return False
        if path.parent.is_dir():
            os.listdir(path.parent)  # refreshes the cache of a network file system
        time.sleep(0.1)
    return True
