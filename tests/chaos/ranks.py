"""SIGKILL of one of two ranks that torchrun has started: it starts both anew, and the run ends to the bit as if nothing
had been."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from chaos.attack import Outcome, differences

from echelon.runs import checkpoint
from echelon.runs.folder import RunFolder

RANKS = 2
FLAGS = ["--num-envs", "24", "--policies", "3", "--update.horizon", "8", "--model.hidden", "8", "--device", "cpu"]
FLAGS += ["--iterations", "16", "--checkpoint-every", "3", "--env.episode-length", "6", "--diagnostics.every", "4"]
SECONDS = 300.0


def storm(place: Path, tries: int, rng: random.Random) -> Outcome:
    """One kill in each run, at any time after it has begun to train."""
    outcome = Outcome()
    whole = place / "whole"
    said, code = _wait(_start(whole))
    outcome.check(code == 0, f"undisturbed: {said}")
    for number in range(tries):
        run = place / f"killed-{number}"
        process = _start(run)
        try:
            _await_iteration(run, rng.randint(1, 12), process)
            workers = _children(process.pid)
            outcome.check(len(workers) == RANKS, f"torchrun has {len(workers)} workers")
            os.kill(rng.choice(workers), signal.SIGKILL)
        finally:
            said, code = _wait(process)
        outcome.tries += 1
        outcome.check(code == 0, f"kill {number}: torchrun ended with {code}: {said}")
        if code == 0:
            pair = (RunFolder.open(run), RunFolder.open(whole))
            found = differences(*pair) + _ranks_apart(*pair)
            restarts = len(_sessions(run))
            outcome.check(restarts == 2, f"kill {number}: started {restarts} times")
            outcome.check(not found, f"kill {number}: {', '.join(found)}")
    return outcome


def _start(out: Path) -> "subprocess.Popen[str]":
    words = ["-m", "torch.distributed.run", "--nproc-per-node", str(RANKS), "--max-restarts", "3", "--standalone"]
    command = [sys.executable, *words, "-m", "echelon", "train", "CartpoleSwingup", *FLAGS, "--out", str(out)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)


def _wait(process: "subprocess.Popen[str]") -> tuple[str, int | None]:
    try:
        said, _ = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        process.terminate()  # which ends the workers too
        return "it hangs", None
    return said, process.returncode


def _await_iteration(run: Path, iteration: int, process: "subprocess.Popen[str]") -> None:
    deadline = time.monotonic() + SECONDS
    metrics = run / "metrics.jsonl"
    while not metrics.exists() or metrics.read_bytes().count(b"\n") < iteration:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.005)


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _sessions(run: Path) -> list[object]:
    return json.loads((run / "config.json").read_text())["sessions"]


def _ranks_apart(found: RunFolder, expected: RunFolder) -> list[str]:
    """Ranks but the first whose own state differs."""
    ours, theirs = checkpoint.load_newest(found), checkpoint.load_newest(expected)
    assert ours is not None
    assert theirs is not None
    return [f"rank {rank} differs" for rank in range(1, RANKS) if ours.others[rank - 1] != theirs.others[rank - 1]]
