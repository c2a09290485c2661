"""What tests of different folders need."""

import os

import pytest
import torch

from echelon import fusion

if not torch.cuda.is_available():  # before anybody imports Triton
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
