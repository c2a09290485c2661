"""SIGKILL at any moment: while a run starts, resumes, trains or saves. It ends to the bit as if nothing had been."""

import random
import signal
import time
from pathlib import Path

from chaos.attack import LIVES, Child, Outcome, differences, run_config, whole_run

from echelon.algorithms import BUILT_IN
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
        whole = whole_run(place, algo, outcome)
        life = LONGEST_LIFE * LIVES[algo]
        kills, number = 0, 0
        while kills < min(share, tries - outcome.tries + kills):
            run = place / f"{algo}-{number}"
            number += 1
            kills += _one_run(run, algo, share - kills, life, outcome, rng)
            found = differences(RunFolder.open(run), whole)
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
