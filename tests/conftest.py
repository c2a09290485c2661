"""What tests of different folders need."""

import os
from pathlib import Path

import pytest
import torch

from echelon.config import TrainConfig
from echelon.device import fusion
from echelon.runs.folder import RunFolder

torch.set_num_threads(1)  # torch's threads wait by spinning: those of two workers would starve each other
if not torch.cuda.is_available():  # before Triton is imported
    os.environ.setdefault("TRITON_INTERPRET", "1")


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU: everything is traced, differentiated and guarded as on CUDA, and then run as it is."""
    monkeypatch.setattr(fusion, "DEVICES", ("cpu", "cuda"))
    if not torch.cuda.is_available():
        monkeypatch.setattr(fusion, "BACKEND", "aot_eager")
        monkeypatch.setattr(fusion, "_can_compile", lambda: True)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """A run folder to work in."""
    path = tmp_path / "run"
    path.mkdir()
    return RunFolder(path, TrainConfig(keep_checkpoints=2))
