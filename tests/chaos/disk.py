"""A disk that is full, read-only or broken at any moment, and a folder that is moved or deleted while it is trained:
one sentence, and the same command resumes to the same end."""

import errno
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from chaos.attack import Child, Outcome, check_resumes, run_config, train_disturbed, whole_run

from echelon.algorithms import BUILT_IN
from echelon.envs.contract import Step
from echelon.training.loop import train

ERRORS = (errno.ENOSPC, errno.EROFS, errno.EIO, errno.EACCES, errno.EDQUOT)
OPERATIONS = ((os, "fsync"), (os, "replace"), (os, "rename"), (Path, "mkdir"))
"""Of a disk: not `os.write`, which writes to pipes, too, as MuJoCo does when it is imported."""


def failing(place: Path, tries: int, rng: random.Random) -> Outcome:
    """From some operation on, every one fails, for any of the reasons that a disk has."""
    outcome = Outcome()
    for number in range(tries):
        algo, why, after = rng.choice(list(BUILT_IN)), rng.choice(ERRORS), rng.randrange(60)
        run, whole = place / str(number), whole_run(place, algo, outcome)

        def act(run: Path = run, algo: str = algo, why: int = why, after: int = after) -> None:
            left = after

            def broken(operation: Callable[..., Any]) -> Callable[..., Any]:
                def wrapped(*given: Any, **more: Any) -> Any:
                    nonlocal left
                    left -= 1
                    if left < 0:
                        raise OSError(why, os.strerror(why))
                    return operation(*given, **more)

                return wrapped

            for owner, name in OPERATIONS:
                setattr(owner, name, broken(getattr(owner, name)))
            train(run_config(run, algo))

        ended = Child(act).wait()
        outcome.tries += 1
        what = f"{algo}, {os.strerror(why)} after {after} operations"
        outcome.check(ended.in_words, f"{what}: {ended.said}")
        check_resumes(run, algo, outcome, what, whole)
    return outcome


def moved(place: Path, tries: int, rng: random.Random) -> Outcome:
    """The folder is renamed, deleted, or replaced by a copy at some control step."""
    outcome = Outcome()
    for number in range(tries):
        algo, way, when = rng.choice(list(BUILT_IN)), rng.choice(("moved", "deleted", "replaced")), rng.randrange(1, 80)
        run, elsewhere, whole = place / str(number), place / f"{number}-elsewhere", whole_run(place, algo, outcome)

        def disturb(
            count: int, step: Step, run: Path = run, elsewhere: Path = elsewhere, way: str = way, when: int = when
        ) -> Step:
            if count == when:
                run.rename(elsewhere)
                if way == "replaced":
                    shutil.copytree(elsewhere, run)
                if way != "moved":
                    shutil.rmtree(elsewhere)
            return step

        ended = Child(lambda run=run, algo=algo, act=disturb: train_disturbed(run_config(run, algo), act)).wait()
        outcome.tries += 1
        what = f"{algo}, {way} at step {when}"
        outcome.check(ended.code == 2 and "so the run stops" in ended.said, f"{what}: {ended.said}")
        outcome.check(run.exists() == (way == "replaced"), f"{what}: the folder was made anew")
        if way != "deleted":
            check_resumes(run if way == "replaced" else elsewhere, algo, outcome, what, whole)
    return outcome
