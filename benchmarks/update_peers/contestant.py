"""What is timed."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True)
class Losses:
    """Means over an update's gradient steps."""

    surrogate: float
    value: float
    """Without its coefficient."""


class Contestant(ABC):
    """A library with the problem's data in its storage and the problem's weights in its networks."""

    clips_values_alike = True
    """Whether the value loss is the larger one of the clipped and the plain, so that it agrees where the clip binds."""

    shares = False
    """Whether actor and critic can be one network but for their last layers."""

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self._parameters = list(parameters)
        self._start = [p.detach().clone() for p in self._parameters]

    @abstractmethod
    def update(self) -> Losses:
        """From a rollout to trained networks: targets, every gradient step, normalisers, and the metrics read."""

    def restore(self) -> None:
        """Weights and learning rate as they were at first, so that every update does the same work."""
        with torch.no_grad():
            for parameter, start in zip(self._parameters, self._start, strict=True):
                parameter.copy_(start)
