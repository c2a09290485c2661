"""A run folder to work in."""

from pathlib import Path

import pytest

from echelon.config import TrainConfig
from echelon.runs.folder import RunFolder


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    path = tmp_path / "run"
    path.mkdir()
    return RunFolder(path, TrainConfig(keep_checkpoints=2))
