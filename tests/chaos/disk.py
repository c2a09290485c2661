"""A disk that is full, read-only or broken at any moment, and a folder that is moved or deleted while it is trained:
one sentence, and the same command goes on to the same end."""

import errno
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from chaos.attack import Child, Outcome, differences, run_config

from echelon.algorithms.settings import BUILT_IN
from echelon.runs.folder import RunFolder
from echelon.tasks import make
from echelon.training.loop import train

ERRORS = (errno.ENOSPC, errno.EROFS, errno.EIO, errno.EACCES, errno.EDQUOT)
OPERATIONS = ((os, "fsync"), (os, "replace"), (os, "rename"), (Path, "mkdir"))
"""Of a disk: not `os.write`, which writes to pipes, too, as MuJoCo does when it is imported."""


def _undisturbed(place: Path, algo: str, outcome: Outcome) -> RunFolder:
    whole = place / f"{algo}-whole"
    if not whole.exists():
        ended = Child(lambda: train(run_config(whole, algo))).wait()
        outcome.check(ended.code == 0, f"{algo}, undisturbed: {ended.said}")
    return RunFolder.open(whole)


def failing(place: Path, tries: int, rng: random.Random) -> Outcome:
    """From some operation on, every one fails, for any of the reasons that a disk has."""
    outcome = Outcome()
    for number in range(tries):
        algo, why, after = rng.choice(list(BUILT_IN)), rng.choice(ERRORS), rng.randrange(60)
        run, whole = place / str(number), _undisturbed(place, algo, outcome)

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
        ended = Child(lambda run=run, algo=algo: train(run_config(run, algo))).wait()
        outcome.check(ended.code == 0, f"{what}, resumed: {ended.said}")
        found = differences(RunFolder.open(run), whole) if ended.code == 0 else []
        outcome.check(not found, f"{what}: {', '.join(found)}")
    return outcome


def moved(place: Path, tries: int, rng: random.Random) -> Outcome:
    """The folder is renamed, deleted, or replaced by a copy at some control step."""
    outcome = Outcome()
    for number in range(tries):
        algo, way, when = rng.choice(list(BUILT_IN)), rng.choice(("moved", "deleted", "replaced")), rng.randrange(1, 80)
        run, whole = place / str(number), _undisturbed(place, algo, outcome)

        def act(run: Path = run, algo: str = algo, way: str = way, when: int = when) -> None:
            config = run_config(run, algo)
            env = make(config.task, config.env, config.num_envs, _cpu(), config.seed, spread_clocks=True)
            step, left = env.step, when

            def stepped(action: Any) -> Any:
                nonlocal left
                left -= 1
                if left == 0:
                    elsewhere = run.with_name(f"{run.name}-elsewhere")
                    run.rename(elsewhere)
                    if way == "replaced":
                        shutil.copytree(elsewhere, run)
                    if way != "moved":
                        shutil.rmtree(elsewhere)
                return step(action)

            env.step = stepped
            train(config, make_env=lambda *_: env)

        ended = Child(act).wait()
        outcome.tries += 1
        what = f"{algo}, {way} at step {when}"
        outcome.check(ended.code == 2 and "so the run stops" in ended.said, f"{what}: {ended.said}")
        outcome.check(run.exists() == (way == "replaced"), f"{what}: the folder was made anew")
        if way == "deleted":
            continue
        left = run if way == "replaced" else run.with_name(f"{run.name}-elsewhere")
        ended = Child(lambda left=left, algo=algo: train(run_config(left, algo))).wait()
        outcome.check(ended.code == 0, f"{what}, resumed: {ended.said}")
        if ended.code == 0:
            found = differences(RunFolder.open(left), whole)
            outcome.check(not found, f"{what}: {', '.join(found)}")
    return outcome


def _cpu() -> Any:
    import torch

    return torch.device("cpu")
