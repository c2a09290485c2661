"""Adam on all parameters as one flat tensor, with a rate that lives on the device."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from echelon.envs.contract import State
from echelon.models.flat import places


class Adam:
    """PyTorch's fused Adam with its defaults. `rate` is a 0-d tensor and may be moved in place at any time.

    The parameters become views of one flat tensor and their gradients views of another. Clipping the global norm and
    stepping are then a handful of operations, however many layers there are.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], rate: float) -> None:
        tensors = list(parameters)
        slices, length = places(p.numel() for p in tensors)
        flat = nn.Parameter(tensors[0].new_zeros(length))
        self.gradient = flat.grad = torch.zeros_like(flat)
        for p, place in zip(tensors, slices, strict=True):
            values = flat.detach()[place].view_as(p)
            p.data = values.copy_(p.detach())
            p.grad = self.gradient[place].view_as(p)
        self.rate = torch.tensor(rate, device=flat.device, dtype=flat.dtype)
        self._adam = torch.optim.Adam([flat], lr=self.rate, fused=True, capturable=flat.is_cuda)
        # As PyTorch would at the first step. Made here, so that loading can be in place: a CUDA graph may know them.
        self._moments = {
            "step": torch.zeros((), device=flat.device),
            "exp_avg": torch.zeros_like(flat),
            "exp_avg_sq": torch.zeros_like(flat),
        }
        self._adam.state[flat] = self._moments

    def step(self, loss: Tensor, clip_norm: float = float("inf")) -> Tensor:
        """One step down the gradient of `loss`, its global norm clipped; returns the norm before clipping."""
        self.backward(loss)
        return self.descend(clip_norm)

    def backward(self, loss: Tensor) -> None:
        """The gradient of `loss`, and of nothing before it."""
        self.gradient.zero_()
        loss.backward()

    def descend(self, clip_norm: float = float("inf")) -> Tensor:
        """One step down the gradient that is there."""
        norm = torch.linalg.vector_norm(self.gradient)
        self.gradient.mul_((clip_norm / (norm + 1e-6)).clamp(max=1.0))
        self._adam.step()
        return norm

    def state_dict(self) -> State:
        """The rate, the step count and both moments. PyTorch's own would come back with a rate that is not ours."""
        return {"rate": self.rate, "moments": self._moments}

    def load_state_dict(self, state: Any) -> None:
        self.rate.copy_(state["rate"])
        for name, x in self._moments.items():
            x.copy_(state["moments"][name])
