"""What a run takes of a GPU."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from gpu import needs_gpu
from tiny import tiny

from echelon.grid import Cell
from echelon.grid.process import write_settings


@needs_gpu
def test_more_environments_take_more_of_a_gpu(tmp_path: Path) -> None:
    """At least what a CUDA context takes, and not more than there is."""
    free, total = torch.cuda.mem_get_info()
    if total - free > torch.cuda.memory_reserved() + 2**32:
        pytest.skip("needs a GPU that nobody else uses")
    taken = []
    for num_envs in (6, 6 * 4096):
        config = tiny("CartpoleSwingup", tmp_path / str(num_envs), num_envs=num_envs, device="cuda")
        settings, out = write_settings(Cell(str(num_envs), config), tmp_path), tmp_path / f"{num_envs}.memory.json"
        subprocess.run([sys.executable, "-m", "echelon.grid.memory", str(settings), str(out)], check=True)
        found = json.loads(out.read_text())
        assert 2**27 < found["bytes"] < found["total"]
        taken.append(found["bytes"])
    assert taken[1] > taken[0]
