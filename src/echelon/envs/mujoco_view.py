"""The MuJoCo simulation inside somebody else's environment, to be looked at."""

from typing import Any

import torch
from torch import Tensor


class MujocoView:
    """Part of the engine contract, for one environment: live tensors `[1, ...]` of its `MjModel` and `MjData`."""

    def __init__(self, model: Any, data: Any) -> None:
        self.model, self._data = model, data

    def __getattr__(self, name: str) -> Tensor:
        return self.read(name)

    def read(self, name: str) -> Tensor:
        """A field of `MjData`."""
        return torch.from_numpy(getattr(self._data, name))[None]

    def expand(self, field: str) -> Tensor:
        """A field of `MjModel`."""
        return torch.from_numpy(getattr(self.model, field))[None]
