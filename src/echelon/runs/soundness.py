"""Whether a saved state can be resumed: weights, moments and statistics must be finite and not absurdly large."""

from collections.abc import Iterator, Mapping
from typing import Any


def unsound(state: Mapping[str, Any]) -> str | None:
    """The name of a tensor that is not finite, if that leaves no sound network; None if at least one is sound.

    A population replaces its broken members, so one sound network is enough; other runs have only one.
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
