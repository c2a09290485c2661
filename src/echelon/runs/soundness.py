"""Whether a state can be gone on from: weights, moments and statistics that are finite and not absurdly large."""

from collections.abc import Iterator, Mapping
from typing import Any


def unsound(state: Mapping[str, Any]) -> str | None:
    """The tensor of a run's `state` that leaves no network of it sound; None if at least one is.

    The others are replaced, in a population; elsewhere there is but one.
    """
    from echelon.envs.checks import MAX_STATISTIC  # imports torch

    trainer = state.get("trainer", {})
    for part in (("model", "optimizer"), ("extra_reward",)):
        sound = None
        for name, x in (found for key in part for found in _floats(trainer.get(key, {}), key)):
            fine = (x.abs() <= MAX_STATISTIC).reshape(len(x), -1).all(1) if x.numel() else None
            sound = fine if sound is None else sound if fine is None else sound & fine
            if sound is not None and not sound.any():
                return name
    return None


def _floats(data: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Tensors of floats with at least one dimension, by their paths."""
    if isinstance(data, Mapping):
        for key, value in data.items():
            yield from _floats(value, f"{name}/{key}")
    elif hasattr(data, "is_floating_point") and data.is_floating_point() and data.dim():
        yield name, data
