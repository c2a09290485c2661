"""SIGKILL of a rank, or of a whole node, of two that torchrun has started: both are started again, and the run ends to
the bit as if nothing had happened. Nodes are torchruns of this machine that meet as those of several machines do."""

import json
import os
import random
import signal
import socket
import time
from pathlib import Path

from chaos.attack import Child, Ended, Outcome, differences
from tiny import PATIENCE
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from echelon import cli
from echelon.runs import checkpoint
from echelon.runs.folder import RunFolder

RANKS = 2
KILLS = ("rank of one node", "rank of two nodes", "node")
"""What is killed, in turn."""
TRAIN = ["train", "CartpoleSwingup", "--num-envs", "24", "--policies", "3", "--update.horizon", "8", "--device", "cpu"]
TRAIN += ["--model.hidden", "8", "--iterations", "16", "--checkpoint-every", "3", "--env.episode-length", "6"]
TRAIN += ["--diagnostics.every", "4", "--out"]


def storm(place: Path, tries: int, rng: random.Random) -> Outcome:
    """One kill in each run, at any time after it has begun to train."""
    outcome, whole = Outcome(), place / "whole"
    meet = _meeting()
    for ended in [rank.wait() for rank in [Child(lambda rank=rank: _rank(rank, meet, whole)) for rank in range(RANKS)]]:
        outcome.check(ended.code == 0, f"undisturbed: {ended.said}")
    for number in range(tries):
        run, what = place / f"killed-{number}", f"{KILLS[number % len(KILLS)]}, kill {number}"
        ended = _killed(run, KILLS[number % len(KILLS)], rng)
        outcome.tries += 1
        for one in ended:
            outcome.check(one.code == 0, f"{what}: torchrun ended with {one.code}: {one.said}")
        if all(one.code == 0 for one in ended):
            starts = len(json.loads((run / "config.json").read_text())["sessions"])
            outcome.check(starts == 2, f"{what}: started {starts} times")
            pair = (RunFolder.open(run), RunFolder.open(whole))
            parts = [checkpoint.load(folder, "newest").parts[1:] for folder in pair]  # checksums
            found = differences(*pair) + ["other ranks differ"] * (parts[0] != parts[1])
            outcome.check(not found, f"{what}: {', '.join(found)}")
    return outcome


def _rank(rank: int, meet: str, out: Path) -> None:
    """One rank of an undisturbed run, without torchrun: a forked process need not import torch."""
    host, port = meet.split(":")
    os.environ |= {"WORLD_SIZE": str(RANKS), "RANK": str(rank), "LOCAL_RANK": str(rank)}
    os.environ |= {"MASTER_ADDR": host, "MASTER_PORT": port}
    raise SystemExit(cli.main([*TRAIN, str(out)]))


def _killed(run: Path, what: str, rng: random.Random) -> list[Ended]:
    """How each agent ended."""
    nodes, meet, kill_at = 1 if what == "rank of one node" else 2, _meeting(), rng.randint(1, 12)
    agents = [_start(run, nodes, number, meet) for number in range(nodes)]
    metrics, deadline = run / "metrics.jsonl", time.monotonic() + PATIENCE
    try:
        while not metrics.exists() or metrics.read_bytes().count(b"\n") < kill_at:
            assert all(agent.alive for agent in agents), [agent.wait() for agent in agents]
            assert time.monotonic() < deadline
            time.sleep(0.005)
        lost = agents[1] if what == "node" else rng.choice(agents)  # the first has what nodes meet at
        workers = Path(f"/proc/{lost.pid}/task/{lost.pid}/children").read_text().split()
        assert len(workers) == RANKS // nodes
        if what == "node":
            lost.kill()
        os.kill(int(rng.choice(workers)), signal.SIGKILL)
        if what == "node":
            lost.wait()
            agents[1] = _start(run, nodes, 1, meet)
    finally:
        ended = [agent.wait() for agent in agents]
    return ended


def _meeting() -> str:
    """An address where nothing listens."""
    with socket.create_server(("localhost", 0)) as server:
        return f"localhost:{server.getsockname()[1]}"


def _start(out: Path, nodes: int, number: int, meet: str) -> Child:
    """The agent that torchrun is, whose workers are forked: they need not import torch."""

    def act() -> None:
        os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = str(int(nodes > 1))
        host = {"is_host": str(int(number == 0)), "keep_alive_interval": "1"}
        config = LaunchConfig(nodes, nodes, RANKS // nodes, rdzv_backend="c10d", rdzv_endpoint=meet, rdzv_configs=host)
        config.run_id, config.start_method = "chaos", "fork"
        elastic_launch(config, _work)(str(out))

    return Child(act)


def _work(out: str) -> None:
    if code := cli.main([*TRAIN, out]):
        raise RuntimeError(f"it ended with {code}")
