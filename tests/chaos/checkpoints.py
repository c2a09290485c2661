"""Checkpoints that are damaged, mixed up, or forged with valid checksums: one sentence, or a run that resumes from
another one. Never a traceback, never numbers that are none."""

import hashlib
import json
import os
import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from chaos.attack import Child, Outcome, repeat, run_config, whole_run
from safetensors.torch import load, save

from echelon.evaluation.evaluate import evaluate
from echelon.runs.checkpoint import STATE, TENSORS, _digest
from echelon.runs.folder import RunFolder
from echelon.training.loop import train

Harm = Callable[[Path, random.Random], object]
Change = Callable[[dict[str, Any], dict[str, Any], dict[str, Any]], object]
"""Changes the body, what it says of rank 0, or the tensors; bytes that it returns are the file of tensors."""


def _flip(path: Path, rng: random.Random) -> None:
    file = path / rng.choice((TENSORS, STATE))
    data = bytearray(file.read_bytes())
    for _ in range(rng.randrange(1, 50)):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    file.write_bytes(data)


def _cut(path: Path, rng: random.Random) -> None:
    file = path / rng.choice((TENSORS, STATE))
    os.truncate(file, rng.randrange(file.stat().st_size))


def _swap(path: Path, rng: random.Random) -> None:
    """One file of another checkpoint."""
    others = [other for other in path.parent.iterdir() if other != path]
    name = rng.choice((TENSORS, STATE))
    shutil.copy(rng.choice(others) / name, path / name)


def _replace(path: Path, rng: random.Random) -> None:
    """A folder in the place of a file, or nothing."""
    file = path / rng.choice((TENSORS, STATE))
    file.unlink()
    if rng.random() < 0.5:
        file.mkdir()


def forge(path: Path, change: Change) -> None:
    """Change a checkpoint's content, and make the checksums right again."""
    body = json.loads((path / STATE).read_text())["body"]
    tensors = load((path / TENSORS).read_bytes())
    given = change(body, body["ranks"][0], tensors)
    data = given if isinstance(given, bytes) else save(tensors)
    with suppress(AttributeError, KeyError, TypeError, IndexError):  # it may be what was changed
        body["ranks"][0]["tensors"].update(sha256=hashlib.sha256(data).hexdigest(), bytes=len(data))
    (path / TENSORS).write_bytes(data)
    (path / STATE).write_text(json.dumps({"sha256": _digest(body), "body": body}))


def _craft(path: Path, rng: random.Random) -> None:
    """Change something, anything, of its content."""

    def change(body: Any, first: Any, tensors: dict[str, Any]) -> None:
        if rng.random() >= 0.5:
            return _mutate(body, rng)
        name = rng.choice(list(tensors))
        x = tensors.pop(name)
        if rng.random() < 0.7:
            tensors[name] = rng.choice((x.flatten()[:1].clone(), x[None].contiguous(), x.double(), x.new_empty(0)))

    forge(path, change)


STRANGE = (None, True, -1, 2**70, 1e308, "", "x", [], {}, [[]])
STRANGE += ({"$tensor": "nowhere"}, {"$map": [[{}, 1]]}, {"$float": "x"})


def _mutate(body: Any, rng: random.Random) -> None:
    """Put something strange in the place of something, at any depth."""
    while True:
        if isinstance(body, dict) and body:
            key = rng.choice(list(body))
        elif isinstance(body, list) and body:
            key = rng.randrange(len(body))
        else:
            return
        if not isinstance(body[key], dict | list) or not body[key] or rng.random() < 0.2:
            body[key] = rng.choice(STRANGE)
            return
        body = body[key]


HARMS: tuple[Harm, ...] = (_flip, _cut, _swap, _replace, _craft, _craft, _craft)


@repeat
def harmed(run: Path, algo: str, rng: random.Random, outcome: Outcome) -> None:
    harm, how_many = rng.choice(HARMS), rng.choice((1, 2, 9))
    shutil.copytree(whole_run(run.parent, algo, outcome).path, run)
    for path in sorted((run / "checkpoints").iterdir(), reverse=True)[:how_many]:
        harm(path, rng)
    for name, act in (
        ("evaluate", lambda: evaluate(RunFolder.open(run), num_envs=1, device="cpu")),
        ("train", lambda: train(run_config(run, algo, iterations=18))),
    ):
        ended = Child(act).wait()
        what = f"{algo}, {harm.__name__} of {how_many} checkpoints ({run.name}), {name}"
        outcome.check(ended.in_words, f"{what}: {ended.said}")
