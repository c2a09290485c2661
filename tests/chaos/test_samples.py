"""A few tries of every attack; `make chaos` makes hundreds."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
TESTS = Path(__file__).parent.parent


@pytest.mark.parametrize(
    "attack",
    ["kills", "kills-ranks", "disk", "moved", "environments", "checkpoints", "flags", "flags-readers", "pages"],
)
def test_it_holds(attack: str) -> None:
    paths = os.pathsep.join([str(TESTS), str(TESTS.parent / "src")])
    command = [sys.executable, "-m", "chaos", attack, "--sample"]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
