"""Checks before ranks train together: the same code and settings, a GPU each, and one folder that all of them see."""

import hashlib
import os
import socket
import time
from collections.abc import Mapping, Sequence
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


def require_alike(ranks: Ranks, config: TrainConfig, device: torch.device) -> None:
    """Raise a `UserError` on all ranks where one of them is not like rank 0."""
    gpu = str(torch.cuda.get_device_properties(device).uuid) if device.type == "cuda" else None
    versions = {"the device": device.type, "the code of Echelon": _code(), "the version of torch": torch.__version__}
    facts = versions | settings_of(config) | {"host": socket.gethostname(), "gpu": gpu}
    if problem := difference(ranks.gather(facts)):
        raise ranks.said_once(UserError(problem))


def _code() -> str:
    """A checksum of the package."""
    digest, root = hashlib.sha256(), Path(echelon.__file__).parent
    for file in sorted(root.rglob("*.py")):
        digest.update(str(file.relative_to(root)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:12]


def difference(facts: Sequence[Mapping[str, Any]]) -> str | None:
    """The first difference between a rank and rank 0, or a GPU that two ranks share, in words; None without one.

    Ranks have a `host` and a `gpu`, its UUID, of their own; all else must be equal.
    """
    first, gpus = facts[0], [found["gpu"] for found in facts]
    for rank, found in enumerate(facts):
        whose = f"rank {rank} (on {found['host']})"
        for name in {**first, **found}:
            if name not in ("host", "gpu") and (ours := first.get(name)) != (theirs := found.get(name)):
                differs = f"{name} is {theirs} on {whose} but {ours} on rank 0 (on {first['host']})"
                return f"{differs}; start the same command everywhere, with the same versions and kind of device"
        if found["gpu"] is not None and found["gpu"] in gpus[:rank]:
            twin = gpus.index(found["gpu"])
            return f"{whose} has no GPU of its own: rank {twin} has the same; start one process for each GPU"
    return None


def require_seen(ranks: Ranks, folder: RunFolder) -> None:
    """Raise a `UserError` on all ranks where one of them does not see the run folder of rank 0."""
    path = folder.path / CONFIG
    written = ranks.broadcast(path.read_bytes() if ranks.first else b"")  # holds the time of its start
    seen = ranks.gather((_appears(path, written), socket.gethostname()))
    for rank, (there, host) in enumerate(seen):
        if not there:
            lacks = f"{folder.path} of rank 0 (on {seen[0][1]}) is not there for rank {rank} (on {host})"
            advice = "pass --out with a folder on a file system that all of them share"
            raise ranks.said_once(UserError(f"{lacks}; {advice}"))


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
