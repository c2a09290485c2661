"""Checks before ranks train together: the same code and settings, a GPU each, and one folder that all of them see."""

import hashlib
import os
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
from echelon.runs.folder import CONFIG, RunFolder

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
    if ranks.size == 1:
        return
    gpu = str(torch.cuda.get_device_properties(device).uuid) if device.type == "cuda" else ""
    facts = Facts(socket.gethostname(), _code(), torch.__version__, settings_of(config), device.type, gpu)
    if problem := difference(ranks.gather(facts)):
        raise ranks.said_once(UserError(problem))


def _code() -> str:
    digest, root = hashlib.sha256(), Path(echelon.__file__).parent
    for file in sorted(root.rglob("*.py")):
        digest.update(str(file.relative_to(root)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def difference(facts: Sequence[Facts]) -> str | None:
    """The first difference between a rank and rank 0, or a GPU that two ranks share, in words; None without one."""
    first, gpus = facts[0], [found.gpu for found in facts]
    for rank, found in enumerate(facts):
        whose = f"rank {rank} (on {found.host})"
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
        if found.gpu in gpus[:rank] and found.gpu:
            twin = gpus.index(found.gpu)
            return f"{whose} has no GPU of its own: rank {twin} has the same; start one process for each GPU"
    return None


def share_folder(ranks: Ranks, config: TrainConfig, colour: int | None, *, change: bool = False) -> RunFolder:
    """The run folder, which rank 0 creates or resumes, and which all must see."""
    made = ranks.attempt(lambda: RunFolder.create_or_resume(config, colour, change=change) if ranks.first else None)
    folder = ranks.broadcast(made)
    assert folder is not None
    if ranks.size == 1:
        return folder
    written = ranks.broadcast(
        (folder.path / CONFIG).read_bytes() if ranks.first else b""
    )  # holds the time of its start
    seen, hosts = ranks.gather(_appears(folder.path / CONFIG, written)), ranks.gather(socket.gethostname())
    if not all(seen):
        blind = seen.index(False)
        problem = (
            f"{folder.path} of rank 0 (on {hosts[0]}) is not there for rank {blind} (on {hosts[blind]}); "
            "pass --out with a folder on a file system that all of them share"
        )
        raise ranks.said_once(UserError(problem))
    return folder


def _appears(path: Path, data: bytes) -> bool:
    """Whether a file holds `data` within `PATIENCE_S`: network file systems are slow to show new files."""
    deadline = time.monotonic() + PATIENCE_S
    while not path.is_file() or path.read_bytes() != data:
        if time.monotonic() > deadline:
            return False
        if path.parent.is_dir():
            os.listdir(path.parent)  # refreshes the cache of a network file system
        time.sleep(0.1)
    return True
