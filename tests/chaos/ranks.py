"""SIGKILL of a rank, or of a whole node, of two that torchrun has started: both are started anew, and the run ends to
the bit as if nothing had been. Nodes are torchruns of this machine that meet as those of several machines do."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from chaos.attack import Outcome, differences
from tiny import PATIENCE

from echelon.runs import checkpoint
from echelon.runs.folder import RunFolder

RANKS = 2
KILLS = ("rank of two nodes", "node", "rank of one node")
"""What is killed, in turn."""
FLAGS = ["--num-envs", "24", "--policies", "3", "--update.horizon", "8", "--model.hidden", "8", "--device", "cpu"]
FLAGS += ["--iterations", "16", "--checkpoint-every", "3", "--env.episode-length", "6", "--diagnostics.every", "4"]


def storm(place: Path, tries: int, rng: random.Random) -> Outcome:
    """One kill in each run, at any time after it has begun to train."""
    outcome = Outcome()
    whole = place / "whole"
    said, code = _wait(_start(whole))
    outcome.check(code == 0, f"undisturbed: {said}")
    for number in range(tries):
        run, what = place / f"killed-{number}", KILLS[number % len(KILLS)]
        ended = _disturbed(run, what, rng)
        outcome.tries += 1
        for said, code in ended:
            outcome.check(code == 0, f"{what}, kill {number}: torchrun ended with {code}: {said}")
        if all(code == 0 for _, code in ended):
            pair = (RunFolder.open(run), RunFolder.open(whole))
            found = differences(*pair) + _ranks_apart(*pair)
            restarts = len(_sessions(run))
            outcome.check(restarts == 2, f"{what}, kill {number}: started {restarts} times")
            outcome.check(not found, f"{what}, kill {number}: {', '.join(found)}")
    return outcome


def _disturbed(run: Path, what: str, rng: random.Random) -> list[tuple[str, int | None]]:
    """What each torchrun said, and its exit code."""
    nodes = 1 if what == "rank of one node" else 2
    meet = _meeting()
    agents = [_start(run, nodes, number, meet) for number in range(nodes)]
    try:
        _await_iteration(run, rng.randint(1, 12), agents)
        workers = {agent: _children(agent.pid) for agent in agents}
        assert sum(map(len, workers.values())) == RANKS, workers
        lost = agents[1] if what == "node" else rng.choice(agents)  # the first has what nodes meet at
        if what == "node":
            lost.kill()
        os.kill(rng.choice(workers[lost]), signal.SIGKILL)
        if what == "node":
            lost.communicate()
            agents[1] = _start(run, nodes, 1, meet)
    finally:
        ended = [_wait(agent) for agent in agents]
    return ended


def _meeting() -> str:
    """An address where nobody listens."""
    with socket.create_server(("localhost", 0)) as server:
        return f"localhost:{server.getsockname()[1]}"


def _start(out: Path, nodes: int = 1, number: int = 0, meet: str = "localhost:0") -> "subprocess.Popen[str]":
    words = ["-m", "torch.distributed.run", "--nnodes", str(nodes), "--nproc-per-node", str(RANKS // nodes)]
    words += ["--max-restarts", "3", "--rdzv-backend", "c10d", "--rdzv-endpoint", meet]
    words += ["--rdzv-conf", f"is_host={int(number == 0)},keep_alive_interval=1"]
    command = [sys.executable, *words, "-m", "echelon", "train", "CartpoleSwingup", *FLAGS, "--out", str(out)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": str(int(nodes > 1))}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)


def _wait(process: "subprocess.Popen[str]") -> tuple[str, int | None]:
    try:
        said, _ = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.terminate()  # which ends the workers too
        said, _ = process.communicate()
        return f"it hangs: {said}", None
    return said, process.returncode


def _await_iteration(run: Path, iteration: int, agents: "list[subprocess.Popen[str]]") -> None:
    deadline = time.monotonic() + PATIENCE
    metrics = run / "metrics.jsonl"
    while not metrics.exists() or metrics.read_bytes().count(b"\n") < iteration:
        for agent in agents:
            assert agent.poll() is None, agent.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.005)


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _sessions(run: Path) -> list[object]:
    return json.loads((run / "config.json").read_text())["sessions"]


def _ranks_apart(found: RunFolder, expected: RunFolder) -> list[str]:
    """Ranks but the first whose own state differs."""
    ours, theirs = checkpoint.find(found), checkpoint.find(expected)
    assert ours is not None
    assert theirs is not None
    pairs = zip(ours.body["ranks"], theirs.body["ranks"], strict=True)
    return [f"rank {rank} differs" for rank, (one, other) in enumerate(pairs, start=1) if one != other]
