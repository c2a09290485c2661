"""What every attack needs: children to harm, a run to harm them in, and a count of what did not hold."""

import itertools
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from tiny import timeless, tiny

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
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid:
            return
        code = 1
        try:
            os.setsid()
            for stream in (1, 2):
                os.dup2(self._out.fileno(), stream)
            act()
            code = 0
        except UserError as error:
            print(f"echelon: {error}", file=sys.stderr)
            code = 2
        except SystemExit as leaving:
            code = leaving.code if isinstance(leaving.code, int) else 1
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def wait(self, seconds: float = SECONDS) -> Ended:
        deadline, hung = time.monotonic() + seconds, False
        while True:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                break
            if time.monotonic() > deadline and not hung:
                hung = True
                self.kill()
            time.sleep(0.002)
        self._out.seek(0)
        said = self._out.read().decode(errors="replace")
        self._out.close()
        return Ended(None if hung else os.waitstatus_to_exitcode(status), said)


def run_config(out: Path, algo: str, **changes: Any) -> TrainConfig:
    """A run of seconds, of CartpoleSwingup with twelve environments, that saves every third iteration."""
    config = tiny("CartpoleSwingup", out, algo, num_envs=12, iterations=24, checkpoint_every=3, keep_checkpoints=2)
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


def train_disturbed(config: TrainConfig, disturb: Callable[[int, Step], Step]) -> None:
    """Train in environments whose steps pass through `disturb`, which is told their numbers, from 1."""
    env = make(config.task, config.env, config.num_envs, torch.device("cpu"), config.seed, spread_clocks=True)
    step, count = env.step, itertools.count(1)
    env.step = lambda action: disturb(next(count), step(action))
    train(config, make_env=lambda *_: env)


def differences(found: RunFolder, expected: RunFolder) -> list[str]:
    """In what a run ended otherwise than another: its state to the bit, its metrics but for times, and its KL."""
    wrong = [f"{name} differs" for name in _unequal(_state(found), _state(expected))]
    if str(timeless(found.path)) != str(timeless(expected.path)):  # NaN is not equal to itself
        wrong.append("the metrics differ")
    for name in ("diagnostics/kl.jsonl", "population/genealogy.jsonl"):
        one, other = (folder.path / name for folder in (found, expected))
        if one.exists() != other.exists() or (one.exists() and one.read_bytes() != other.read_bytes()):
            wrong.append(f"{name} differs")
    leftover = [path.name for path in found.path.rglob(".*") if path.name != ".lock"]
    return wrong + [f"{name} was left" for name in leftover]


def _state(folder: RunFolder) -> Any:
    loaded = checkpoint.find(folder)
    assert loaded is not None, f"{folder.path} has no checkpoint"
    return loaded.state["trainer"]


def _unequal(a: Any, b: Any, name: str = "trainer") -> list[str]:
    """Names of parts of two states that are not equal to the bit."""
    if isinstance(a, dict) and isinstance(b, dict):
        if a.keys() != b.keys():
            return [name]
        return [found for key in a for found in _unequal(a[key], b[key], f"{name}/{key}")]
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        same = (a.shape, a.dtype) == (b.shape, b.dtype) and a.flatten().view(torch.uint8).equal(
            b.flatten().view(torch.uint8)
        )
        return [] if same else [name]
    return [] if str(a) == str(b) else [name]
