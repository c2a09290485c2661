"""One trainer per folder, and looking at the lock does not open it."""

import subprocess
import sys
from pathlib import Path

import pytest

from echelon.runs.folder import hold, is_held

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no lock on Windows")

SCRIPT = "import sys; from pathlib import Path; from echelon.runs.folder import {0}; print({0}(Path(sys.argv[1])))"


def elsewhere(call: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """What another process makes of `call`."""
    return subprocess.run([sys.executable, "-c", SCRIPT.format(call), str(folder)], capture_output=True, text=True)


def test_looking_at_ones_own_lock_keeps_it(tmp_path: Path) -> None:
    hold(tmp_path)
    assert not is_held(tmp_path)  # not by another process
    assert elsewhere("is_held", tmp_path).stdout == "True\n"
    assert "is being trained by another process" in elsewhere("hold", tmp_path).stderr


def test_a_folder_made_anew_is_not_the_one_that_was_held(tmp_path: Path) -> None:
    hold(tmp_path)
    (tmp_path / ".lock").unlink()
    script = SCRIPT.format("hold") + "; sys.stdout.flush(); sys.stdin.read()"
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout
        other.stdout.readline()
        assert is_held(tmp_path)
        other.communicate()
    assert not is_held(tmp_path)
