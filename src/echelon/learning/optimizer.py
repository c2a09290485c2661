"""Adam whose rate is a tensor on the device, and whose state can be stored and put back without losing that tensor."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from echelon.envs.contract import State


class Adam:
    """Fused Adam with PyTorch's defaults. `rate` may be moved in place at any time."""

    def __init__(self, parameters: Iterable[nn.Parameter], rate: float) -> None:
        self.parameters = list(parameters)
        self.rate = torch.tensor(rate, device=self.parameters[0].device, dtype=self.parameters[0].dtype)
        self._adam = torch.optim.Adam(self.parameters, lr=self.rate, fused=True)

    def step(self, loss: Tensor, clip_norm: float | None = None) -> Tensor:
        """One step down the gradient of `loss`, its global norm clipped; returns the norm before clipping."""
        self._adam.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, float("inf") if clip_norm is None else clip_norm)
        self._adam.step()
        return norm

    def state_dict(self) -> State:
        """The rate and both moments. PyTorch's own state would come back with a rate that is no longer `self.rate`."""
        moments = {str(i): dict(self._adam.state[p]) for i, p in enumerate(self.parameters)}
        return {"rate": self.rate, "moments": moments}

    def load_state_dict(self, state: Any) -> None:
        self.rate.copy_(state["rate"])
        for i, parameter in enumerate(self.parameters):
            moments = state["moments"].get(str(i), {})
            self._adam.state[parameter] = {name: x.to(parameter.device).clone() for name, x in moments.items()}
