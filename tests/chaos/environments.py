"""An environment that goes wrong: numbers that are none or absurd, wrong shapes and types, exceptions, in one of its
copies or in all, at any step. Nothing spoiled is saved, and a mended environment goes on."""

import math
import random
from pathlib import Path
from typing import Any

import torch
from chaos.attack import Child, Outcome, run_config

from echelon.algorithms.settings import BUILT_IN
from echelon.envs.contract import Step
from echelon.runs import checkpoint
from echelon.runs.folder import RunFolder
from echelon.runs.soundness import unsound
from echelon.tasks import make
from echelon.training.loop import train

VALUES = (math.nan, math.inf, -math.inf, 1e30, -3e38)
SHAPES = ("[N, 1]", "[1]", "[]", "float64", "int64", "numpy", "None")


class Broken(Exception):
    """Of the environment itself: this traceback is its author's."""


def faults(place: Path, tries: int, rng: random.Random) -> Outcome:
    outcome = Outcome()
    for number in range(tries):
        algo, when, part = rng.choice(list(BUILT_IN)), rng.randrange(1, 90), rng.choice(("obs", "reward", "terminated"))
        kind = rng.choice((*VALUES, *SHAPES, "exception"))
        rows = rng.choice((slice(None), slice(4, 5)))
        run = place / str(number)

        def act(algo: str = algo, run: Path = run, when: int = when, harm: Any = (part, kind, rows)) -> None:
            config = run_config(run, algo)
            env = make(config.task, config.env, config.num_envs, torch.device("cpu"), config.seed, spread_clocks=True)
            step, left = env.step, when

            def stepped(action: Any) -> Step:
                nonlocal left
                left -= 1
                done = step(action)
                return _harmed(done, *harm) if left == 0 or (left < 0 and isinstance(harm[1], str)) else done

            env.step = stepped
            train(config, make_env=lambda *_: env)

        ended = Child(act).wait()
        outcome.tries += 1
        what = f"{algo}: {part} of {'all' if rows == slice(None) else 'one'} {kind} at step {when}"
        outcome.check(ended.in_words or "Broken" in ended.said or "Error" in ended.said, f"{what}: {ended.said}")
        if isinstance(kind, float):
            outcome.check(ended.in_words, f"{what}: {ended.said}")
        found = checkpoint.find(RunFolder.open(run), warn=lambda text: None)
        outcome.check(found is None or unsound(found.state) is None, f"{what}: it was saved")
        ended = Child(lambda run=run, algo=algo: train(run_config(run, algo))).wait()
        outcome.check(ended.code == 0, f"{what}, mended: {ended.said}")
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
        x = {
            "[N, 1]": lambda: x[:, :1] if x.dim() > 1 else x[:, None],
            "[1]": lambda: x[:1],
            "[]": lambda: x.flatten()[0],
            "float64": lambda: x.double(),
            "int64": lambda: x.long(),
            "numpy": lambda: x.numpy(),
            "None": lambda: None,
        }[kind]()
    if part == "obs":
        step.obs = {"policy": x}
    else:
        setattr(step, part, x)
    return step
