"""A few tries of every attack; `make chaos` makes hundreds. Attacks share processes: importing torch is slow."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
TESTS = Path(__file__).parent.parent


@pytest.mark.parametrize(
    "attacks",
    [
        ["kills", "disk", "disk-real", "moved", "environments", "folders", "flags", "flags-readers"],
        ["kills-ranks"],
    ],
    ids=" ".join,
)
def test_it_holds(attacks: list[str]) -> None:
    paths = os.pathsep.join([str(TESTS), str(TESTS.parent / "src")])
    command = [sys.executable, "-m", "chaos", *attacks, "--sample"]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout + done.stderr
