"""What the members of a population do not have in common: a vector on the device for each hyperparameter."""

import typing
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from echelon.config import Mutable, UpdateConfig
from echelon.envs.contract import State
from echelon.rollout.layout import Layout

SCALE = "env."
"""Before the name of a task's reward scale."""


class Hyperparameters:
    """`[M]` each, written in place, so that a recorded graph reads what is set between two replays.

    The learning rate is the optimizer's own, which the KL rule moves too; everything else is float64, so that a member
    computes with the same numbers as a run that has them as settings. A task's reward scales are `[N]` tensors of the
    environment, one number for each policy's block.
    """

    def __init__(self, update: UpdateConfig, rate: Tensor, scales: Mapping[str, Tensor], layout: Layout) -> None:
        self._scales, self._layout = scales, layout
        members, device = layout.policies, rate.device

        def vector(value: Any) -> Tensor:
            return torch.full((members,), float(value), dtype=torch.float64, device=device)

        self.vectors = {name: vector(getattr(update, name)) for name in typing.get_args(Mutable)}
        self.vectors["learning_rate"] = rate
        self.vectors |= {SCALE + name: vector(scale.flatten()[0]) for name, scale in scales.items()}

    def __getitem__(self, name: str) -> Tensor:
        return self.vectors[name]

    def read(self) -> list[dict[str, float]]:
        """Every member's, on the host, in one transfer."""
        rows = torch.stack([x.double() for x in self.vectors.values()], dim=1).tolist()
        return [dict(zip(self.vectors, row, strict=True)) for row in rows]

    def write(self, rows: Sequence[Mapping[str, float]]) -> None:
        """Set every member's; names that are left out stay as they are."""
        for member, values in enumerate(rows):
            for name, value in values.items():
                self.vectors[name][member].fill_(value)
        self._push()

    def _push(self) -> None:
        for name, scale in self._scales.items():
            scale.copy_(self.vectors[SCALE + name].index_select(0, self._layout.policy_id))

    def state_dict(self) -> State:
        return {name: x.clone() for name, x in self.vectors.items()}

    def load_state_dict(self, state: Any) -> None:
        for name, x in state.items():
            self.vectors[name].copy_(x)
        self._push()
