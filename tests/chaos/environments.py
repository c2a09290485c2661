"""An environment that goes wrong: numbers that are none or absurd, wrong shapes and types, exceptions, in one of its
copies or in all, at any step. Nothing spoiled is saved, and a run with a fixed environment resumes."""

import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from chaos.attack import Child, Outcome, check_resumes, run_config, train_disturbed

from echelon.algorithms import BUILT_IN
from echelon.envs.contract import Step
from echelon.runs import checkpoint
from echelon.runs.folder import RunFolder

VALUES = (math.nan, math.inf, -math.inf, 1e30, -3e38)
HARMS: dict[str, Callable[[Any], Any]] = {
    "[N, 1]": lambda x: x[:, :1] if x.dim() > 1 else x[:, None],
    "[1]": lambda x: x[:1],
    "[]": lambda x: x.flatten()[0],
    "float64": lambda x: x.double(),
    "int64": lambda x: x.long(),
    "numpy": lambda x: x.numpy(),
    "None": lambda x: None,
}


class Broken(Exception):
    """Of the environment itself: this traceback is its author's."""


def faults(place: Path, tries: int, rng: random.Random) -> Outcome:
    outcome = Outcome()
    for number in range(tries):
        algo, when, part = rng.choice(list(BUILT_IN)), rng.randrange(1, 90), rng.choice(("obs", "reward", "terminated"))
        kind = rng.choice((*VALUES, *HARMS, "exception"))
        rows = rng.choice((slice(None), slice(4, 5)))
        run = place / str(number)

        def disturb(count: int, step: Step, when: int = when, harm: Any = (part, kind, rows)) -> Step:
            return _harmed(step, *harm) if count == when or (count > when and isinstance(harm[1], str)) else step

        ended = Child(lambda run=run, algo=algo, act=disturb: train_disturbed(run_config(run, algo), act)).wait()
        outcome.tries += 1
        what = f"{algo}: {part} of {'all' if rows == slice(None) else 'one'} {kind} at step {when}"
        outcome.check(ended.in_words or "Broken" in ended.said or "Error" in ended.said, f"{what}: {ended.said}")
        if isinstance(kind, float):
            outcome.check(ended.in_words, f"{what}: {ended.said}")
        found = checkpoint.find(RunFolder.open(run), warn=lambda text: None)
        outcome.check(found is None or checkpoint.unsound(found.state) is None, f"{what}: it was saved")
        check_resumes(run, algo, outcome, what)
    return outcome


def _harmed(step: Step, part: str, kind: Any, rows: slice) -> Step:
    if kind == "exception":
        raise Broken
    x: Any = step.obs["policy"] if part == "obs" else getattr(step, part)
    if isinstance(kind, float):
        if part != "terminated":
            x = x.clone()
            x[rows] = kind
    else:
        x = HARMS[kind](x)
    if part == "obs":
        step.obs = {"policy": x}
    else:
        setattr(step, part, x)
    return step
