"""A run in another library's environment, from the first iteration to the report."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from echelon import cli

SMALL = ["--device", "cpu", "--model.hidden", "16", "--checkpoint-every", "1", "--diagnostics.every", "0"]


def iterations(path: Path) -> list[dict[str, float]]:
    """What a run has logged so far, without a line that is being written."""
    file = path / "metrics.jsonl"
    lines = file.read_text().split("\n")[:-1] if file.exists() else []
    return [json.loads(line) for line in lines]


def live(source: str, out: Path, *flags: str, killed: bool = True) -> list[dict[str, float]]:
    """Train, kill in the middle or stop, resume, evaluate, report; what was logged."""
    words = ["train", "--env", source, *SMALL, *flags, "--out", str(out), "--iterations"]
    if killed:
        train_and_kill([*words, "100000"], out)
    else:
        assert cli.main([*words, "2"]) == 0
    done = len(iterations(out))
    assert cli.main([*words, str(done + 2)]) == 0
    assert cli.main(["evaluate", str(out), "--num-envs", "2", "--device", "cpu"]) == 0
    assert cli.main(["report", str(out)]) == 0
    lines = iterations(out)
    assert [line["iteration"] for line in lines] == list(range(1, done + 3))
    return lines


def train_and_kill(words: list[str], out: Path, patience: float = 240.0) -> None:
    """Train in another process, which is killed after two iterations."""
    found_here = {"PYTHONPATH": os.pathsep.join(sys.path)}  # pytest's own, for environments among the tests
    command = [sys.executable, "-m", "echelon.cli", *words]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=os.environ | found_here)
    until = time.monotonic() + patience
    try:
        while len(iterations(out)) < 2:
            assert process.poll() is None, "it ended by itself"
            assert time.monotonic() < until, "two iterations took too long"
            time.sleep(0.1)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
