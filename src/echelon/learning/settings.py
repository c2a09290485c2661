"""Settings of the update: each is one number for all policies, or a vector over them on the device."""

from collections.abc import Mapping
from dataclasses import fields

import torch
from torch import Tensor

from echelon.config import UpdateConfig
from echelon.errors import UserError
from echelon.rollout.layout import Layout

BY_POLICY = ("discount", "gae_lambda", "clip", "critic_coef", "bounds_coef", "entropy_coef")
BY_NETWORK = ("learning_rate", "mini_epochs", "grad_norm", "kl_threshold")
"""Settings that may be vectors: over policies, or over networks by the value of their first policy."""


class Settings:
    """Fields of `UpdateConfig` as the update reads them.

    Most are plain numbers. An algorithm may replace some by vectors `[M]`, which are float64, so that a policy computes
    with the very number that a run of its own would have, and may be written in place between iterations: a recorded
    graph reads what is there.
    """

    def __init__(self, update: UpdateConfig, layout: Layout, vectors: Mapping[str, Tensor] | None = None) -> None:
        self.layout = layout
        self.numbers: dict[str, float] = {f.name: getattr(update, f.name) for f in fields(update)}
        self.vectors = dict(vectors or {})
        for name, vector in self.vectors.items():
            if name not in BY_POLICY + BY_NETWORK:
                known = ", ".join(BY_POLICY + BY_NETWORK)
                raise UserError(f"{name} cannot differ between policies; what can is {known}")
            if vector.shape != (layout.policies,):
                raise UserError(
                    f"{name} must be a vector of {layout.policies} numbers, one per policy, not {list(vector.shape)}"
                )

    def at(self, name: str, policy_id: Tensor, dtype: torch.dtype) -> float | Tensor:
        """The setting of each of some policies, in the shape of their ids.

        A number stays a Python number, and a vector of one element stays float64: rounded to float32 it would be
        another number.
        """
        if name not in self.vectors:
            return self.numbers[name]
        vector = self.vectors[name]
        if len(vector) == 1:
            return vector[0]
        return vector.to(dtype).index_select(0, policy_id.flatten()).view_as(policy_id)

    def of_networks(self, name: str) -> float | Tensor:
        """A number, or one per network `[G]`: that of its first policy."""
        if name not in self.vectors:
            return self.numbers[name]
        return self.vectors[name].view(self.layout.networks, self.layout.each)[:, 0]


def entropy_ladder(update: UpdateConfig, layout: Layout) -> dict[str, Tensor]:
    """Entropy bonuses of an ensemble: `entropy_coef` for all, and for the k-th of K half of `entropy_scale` times
    k/(K-1), so that the leader gets nothing of it."""
    if not update.entropy_scale or layout.each == 1:
        return {}
    ladder = torch.arange(layout.each, device=layout.device).double() / (layout.each - 1)
    return {"entropy_coef": (update.entropy_coef + 0.5 * update.entropy_scale * ladder).repeat(layout.networks)}
