"""What every attack needs: children to harm, a run to harm them in, and a count of what did not hold."""

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
from tiny import tiny

from echelon.config import TrainConfig
from echelon.errors import UserError
from echelon.runs import checkpoint
from echelon.runs.folder import RunFolder
from echelon.runs.metrics import read_metrics

CLOCKS = ("wall_s", "fps/", "time/")
"""Metrics that no two runs have in common."""
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


def differences(found: RunFolder, expected: RunFolder) -> list[str]:
    """In what a run ended otherwise than another: its state to the bit, its metrics but for times, and its KL."""
    wrong = [f"{name} differs" for name in _unequal(_state(found), _state(expected))]
    ours, theirs = ([_timeless(line) for line in read_metrics(folder)] for folder in (found, expected))
    if str(ours) != str(theirs):  # NaN is not equal to itself
        wrong.append("the metrics differ")
    for name in ("diagnostics/kl.jsonl", "population/genealogy.jsonl"):
        texts = [
            (folder.path / name).read_bytes() if (folder.path / name).exists() else b"" for folder in (found, expected)
        ]
        if texts[0] != texts[1]:
            wrong.append(f"{name} differs")
    leftover = [path.name for path in found.path.rglob(".*") if path.name != ".lock"]
    return wrong + [f"{name} was left" for name in leftover]


def _state(folder: RunFolder) -> Any:
    loaded = checkpoint.find(folder)
    assert loaded is not None, f"{folder.path} has no checkpoint"
    return loaded.state["trainer"]


def _timeless(line: dict[str, float]) -> dict[str, float]:
    return {name: x for name, x in line.items() if not name.startswith(CLOCKS)}


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
