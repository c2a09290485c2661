"""What every attack needs: children to harm, a run to harm them in, and a count of what did not hold."""

import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from tiny import differing, disturbed, timeless, tiny

from echelon.algorithms import FROM_SCRATCH
from echelon.config import TrainConfig
from echelon.envs.contract import Step
from echelon.errors import UserError
from echelon.runs import checkpoint
from echelon.runs.folder import RunFolder
from echelon.tasks import make
from echelon.training.loop import train

LIVES: dict[str, float] = {}
"""Seconds of an undisturbed run, by algorithm."""
SECONDS = 120.0
"""What a child may take: more means that it hangs."""


@dataclass
class Outcome:
    """How an attack went."""

    tries: int = 0
    failures: list[str] = field(default_factory=list)

    def check(self, holds: bool, what: str) -> None:
        if not holds:
            self.failures.append(what)


@dataclass
class Ended:
    """How a child ended: its exit code, minus the signal that killed it, or None if it hung; and what it said."""

    code: int | None
    said: str

    @property
    def in_words(self) -> bool:
        """Whether it ended well, or with one sentence."""
        return self.code == 0 or (self.code == 2 and "Traceback" not in self.said)


class Child:
    """A process that does something, forked: torch is imported once for all of them."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._out = tempfile.TemporaryFile()  # noqa: SIM115  # closed by `wait`
        self._process = multiprocessing.get_context("fork").Process(target=self._run, args=(act,))
        self._process.start()
        self.kill, self.pid = self._process.kill, self._process.pid

    def _run(self, act: Callable[[], object]) -> None:
        os.setsid()
        for stream in (1, 2):
            os.dup2(self._out.fileno(), stream)
        try:
            act()
        except UserError as error:
            print(f"echelon: {error}", file=sys.stderr)
            sys.exit(2)

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    def wait(self, seconds: float = SECONDS) -> Ended:
        self._process.join(seconds)
        code = self._process.exitcode
        self.kill()
        self._process.join()
        self._out.seek(0)
        said = self._out.read().decode(errors="replace")
        self._out.close()
        return Ended(code, said)


def repeat(attempt: Callable[[Path, str, random.Random, Outcome], None]) -> Callable[..., Outcome]:
    """An attack of several tries, each on a run and an algorithm of its own."""

    def attack(place: Path, tries: int, rng: random.Random) -> Outcome:
        outcome = Outcome()
        for number in range(tries):
            attempt(place / str(number), rng.choice(list(FROM_SCRATCH)), rng, outcome)
            outcome.tries += 1
        return outcome

    return attack


def run_config(out: Path, algo: str, **changes: Any) -> TrainConfig:
    """A run of seconds, of CartpoleSwingup with twelve environments, that saves every third iteration."""
    config = tiny("CartpoleSwingup", out, algo, num_envs=12, iterations=15, checkpoint_every=3, keep_checkpoints=2)
    pbt = replace(config.pbt, interval=16, initial_delay=16, wait=0)
    diagnostics = replace(config.diagnostics, every=4, states=8)
    return replace(config, env=replace(config.env, episode_length=6), pbt=pbt, diagnostics=diagnostics, **changes)


def whole_run(place: Path, algo: str, outcome: Outcome) -> RunFolder:
    """An undisturbed run, trained once per algorithm for all attacks, whose places lie side by side."""
    whole = place.parent / f"{algo}-whole"
    if not whole.exists():
        began = time.monotonic()
        ended = Child(lambda: train(run_config(whole, algo))).wait()
        LIVES[algo] = time.monotonic() - began
        outcome.check(ended.code == 0, f"{algo}, undisturbed: {ended.said}")
    return RunFolder.open(whole)


def check_resumes(run: Path, algo: str, outcome: Outcome, what: str, whole: RunFolder | None = None) -> None:
    """Train a disturbed run to its end, which is that of the whole one."""
    ended = Child(lambda: train(run_config(run, algo))).wait()
    outcome.check(ended.code == 0, f"{what}, resumed: {ended.said}")
    if ended.code == 0 and whole is not None:
        found = differences(RunFolder.open(run), whole)
        outcome.check(not found, f"{what}: {', '.join(found)}")


def train_disturbed(config: TrainConfig, disturb: Callable[[int, Step], Step]) -> Ended:
    """Train in environments whose steps pass through `disturb`, which is told their numbers, from 1."""

    def act() -> None:
        env = make(config.task, config.env, config.num_envs, torch.device("cpu"), config.seed, spread_clocks=True)
        train(config, make_env=lambda *_: disturbed(env, disturb))

    return Child(act).wait()


def differences(found: RunFolder, expected: RunFolder) -> list[str]:
    """In what a run ended otherwise than another: its state to the bit, its metrics but for times, and its KL."""
    states = (checkpoint.load(folder, "newest").state["trainer"] for folder in (found, expected))
    wrong = [f"{name} differs" for name in differing(*states)]
    if str(timeless(found.path)) != str(timeless(expected.path)):  # NaN is not equal to itself
        wrong.append("the metrics differ")
    for name in ("diagnostics/kl.jsonl", "population/genealogy.jsonl"):
        one, other = (folder.path / name for folder in (found, expected))
        if one.exists() != other.exists() or (one.exists() and one.read_bytes() != other.read_bytes()):
            wrong.append(f"{name} differs")
    leftover = [path.name for path in found.path.rglob(".*") if path.name != ".lock"]
    return wrong + [f"{name} was left" for name in leftover]
