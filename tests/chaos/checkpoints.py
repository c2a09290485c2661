"""Checkpoints that are forged with valid checksums."""

import hashlib
import json
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from safetensors.torch import load, save

from echelon.runs.checkpoint import STATE, TENSORS, _digest

Change = Callable[[dict[str, Any], dict[str, Any], dict[str, Any]], object]
"""Changes the body, what it says of rank 0, or the tensors; bytes that it returns are the file of tensors."""


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


def craft(seed: int) -> Change:
    """Change something, anything, of its content."""
    rng = random.Random(seed)

    def change(body: Any, first: Any, tensors: dict[str, Any]) -> None:
        if rng.random() >= 0.5:
            return _mutate(body, rng)
        name = rng.choice(list(tensors))
        x = tensors.pop(name)
        if rng.random() < 0.7:
            tensors[name] = rng.choice((x.flatten()[:1].clone(), x[None].contiguous(), x.double(), x.new_empty(0)))

    return change


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
