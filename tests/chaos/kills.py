"""SIGKILL at any moment: while a run starts, resumes, trains or saves. It ends to the bit as if nothing had been."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from chaos.attack import Child, Outcome, differences, run_config

from echelon.algorithms.settings import BUILT_IN
from echelon.runs.folder import RunFolder
from echelon.training.loop import train

LONGEST_LIFE = 1.0
"""Of a child, in times of an undisturbed run: so that kills come while it starts, resumes, trains and saves, and a run
gets to its end after a few."""


def storm(place: Path, tries: int, rng: random.Random) -> Outcome:
    """Kills, the algorithms in turn, or as many of them as there are kills; a run that gets to its end is compared, and
    another begins."""
    outcome = Outcome()
    share = -(-tries // len(BUILT_IN))
    for algo in rng.sample(list(BUILT_IN), min(tries, len(BUILT_IN))):
        whole = place / f"{algo}-whole"
        began = time.monotonic()
        ended = Child(lambda algo=algo, whole=whole: train(run_config(whole, algo))).wait()
        life = LONGEST_LIFE * (time.monotonic() - began)
        outcome.check(ended.code == 0, f"{algo}, undisturbed: {ended.said}")
        kills, number = 0, 0
        while kills < min(share, tries - outcome.tries + kills):
            run = place / f"{algo}-{number}"
            number += 1
            kills += _one_run(run, algo, share - kills, life, outcome, rng)
            found = differences(RunFolder.open(run), RunFolder.open(whole))
            outcome.check(not found, f"{algo} after {kills} kills: {', '.join(found)}")
    return outcome


def _one_run(run: Path, algo: str, most: int, life: float, outcome: Outcome, rng: random.Random) -> int:
    """Kill a run again and again until it ends by itself, or `most` kills are done; how many they were."""
    kills = 0
    while True:
        child = Child(lambda: train(run_config(run, algo)))
        if kills < most:
            time.sleep(rng.uniform(0, life))
            child.kill()
        ended = child.wait()
        if ended.code == 0:
            return kills
        outcome.check(ended.code == -signal.SIGKILL, f"{algo}: {ended.said}")
        if ended.code != -signal.SIGKILL:
            return kills + 1
        kills += 1
        outcome.tries += 1


def grid(place: Path, tries: int, rng: random.Random) -> Outcome:
    """The same of `echelon compare` and its runs, whose processes end by themselves when it is gone."""
    outcome = Outcome()
    flags = ["--num-envs", "24", "--update.horizon", "8", "--model.hidden", "8", "--device", "cpu", "--policies", "2"]
    flags += ["--iterations", "30", "--checkpoint-every", "5"]
    words = ["compare", "--tasks", "CartpoleSwingup", "--algos", "ppo", "cpo", "--seeds", "1", *flags, "--out"]

    def start(out: Path) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "echelon.cli", *words, str(out)]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)

    for name in ("whole", "killed"):
        for _ in range(tries if name == "killed" else 0):
            process = start(place / name)
            time.sleep(rng.uniform(2, 20))
            process.kill()
            process.communicate()
            outcome.tries += 1
        process = start(place / name)
        said, _ = process.communicate(timeout=600)
        outcome.check(process.returncode == 0, f"compare ended with {process.returncode}: {said}")
    for algo in ("ppo", "cpo"):
        pair = [RunFolder.open(place / name / f"CartpoleSwingup-{algo}-s0") for name in ("killed", "whole")]
        found = differences(*pair)
        outcome.check(not found, f"{algo} of compare: {', '.join(found)}")
    return outcome
