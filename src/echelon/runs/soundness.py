"""Whether a saved state can be resumed: weights, moments and statistics must be finite and not absurdly large."""

from collections.abc import Mapping
from typing import Any

from echelon.runs.encoding import tensors_of


def unsound(state: Mapping[str, Any]) -> str | None:
    """The name of a tensor that is not finite, if that leaves no sound network; None if at least one is sound.

    A population replaces its broken members, so one sound network is enough; other runs have only one.
    """
    from echelon.envs.checks import MAX_STATISTIC  # imports torch

    trainer = state.get("trainer", {})
    for part in (("model", "optimizer"), ("extra_reward",)):
        sound = None
        for name, x in (found for key in part for found in tensors_of(trainer.get(key, {}), key)):
            if x.is_floating_point() and x.dim() and x.numel():
                fine = (x.abs() <= MAX_STATISTIC).reshape(len(x), -1).all(1)
                sound = fine if sound is None else sound & fine
                if not sound.any():
                    return name
    return None
