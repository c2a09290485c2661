"""Adam on all parameters as one flat tensor, with a rate that lives on the device."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adam import adam

from echelon.device.fusion import fused
from echelon.envs.contract import State
from echelon.models.flat import places


def adam_step(
    values: Tensor,
    gradient: Tensor,
    mean: Tensor,
    square: Tensor,
    step: Tensor,
    rate: Tensor,
    skip: Tensor | None = None,
    *,
    kernel: bool = True,
) -> None:
    """PyTorch's Adam with its defaults on one tensor, in place: in its fused kernel, or as operations to be compiled.

    The kernel is made to `skip` a step where that is 1, without the host looking: it is told of an overflow.
    """
    adam(
        [values],
        [gradient],
        [mean],
        [square],
        [],
        [step],
        foreach=False,
        fused=kernel,
        capturable=not kernel,
        found_inf=skip,
        amsgrad=False,
        beta1=0.9,
        beta2=0.999,
        lr=rate,
        weight_decay=0.0,
        eps=1e-8,
        maximize=False,
    )


class Adam:
    """PyTorch's Adam with its defaults. `rate` is a 0-d tensor and may be moved in place at any time.

    The parameters become views of one flat tensor and their gradients views of another. Clipping the global norm and
    stepping are then a handful of operations, however many layers there are. PyTorch's fused kernel does the stepping,
    or with `fuse`, where there is a compiler, all of it is compiled: that kernel gives 65,536 numbers to each
    multiprocessor, so with a network of this size most have nothing to do.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], rate: float, *, fuse: bool = False) -> None:
        self._parameters = list(parameters)
        slices, length = places(p.numel() for p in self._parameters)
        self.flat = self._parameters[0].detach().new_zeros(length)
        self.gradient = torch.zeros_like(self.flat)
        self._gradients: list[Tensor] = []
        for p, place in zip(self._parameters, slices, strict=True):
            values = self.flat[place].view_as(p)
            p.data = values.copy_(p.detach())
            p.grad = self.gradient[place].view_as(p)
            self._gradients.append(p.grad)
        self.rate = torch.tensor(rate, device=self.flat.device, dtype=self.flat.dtype)
        # Made here, so that loading can be in place: a CUDA graph may know them.
        self._moments = {
            "step": torch.zeros((), device=self.flat.device),
            "exp_avg": torch.zeros_like(self.flat),
            "exp_avg_sq": torch.zeros_like(self.flat),
        }
        self.descend = fused(self._descend, self.flat.device, enabled=fuse)

    def step(self, loss: Tensor, clip_norm: float = float("inf")) -> Tensor:
        """One step down the gradient of `loss`, its global norm clipped; returns the norm before clipping."""
        self.backward(loss)
        return self.descend(clip_norm)

    def backward(self, loss: Tensor) -> None:
        """The gradient of `loss`, and of nothing before it."""
        gradients = torch.autograd.grad(loss, self._parameters, allow_unused=True, materialize_grads=True)
        torch._foreach_copy_(self._gradients, gradients)  # pyright: ignore[reportPrivateImportUsage]

    def _descend(self, clip_norm: float = float("inf")) -> Tensor:
        """One step down the gradient that is there."""
        compiled = torch.compiler.is_compiling()
        # PyTorch's kernel counts in float32 and corrects for the count in float64.
        step = self._moments["step"].double() if compiled else self._moments["step"]
        norm = torch.linalg.vector_norm(self.gradient)
        self.gradient.mul_((clip_norm / (norm + 1e-6)).clamp(max=1.0))
        mean, square = self._moments["exp_avg"], self._moments["exp_avg_sq"]
        adam_step(self.flat, self.gradient, mean, square, step, self.rate, kernel=not compiled)
        if compiled:
            self._moments["step"].copy_(step)
        return norm

    def state_dict(self) -> State:
        """The rate, the step count and both moments. PyTorch's own would come back with a rate that is not ours."""
        return {"rate": self.rate, "moments": self._moments}

    def load_state_dict(self, state: Any) -> None:
        self.rate.copy_(state["rate"])
        for name, x in self._moments.items():
            x.copy_(state["moments"][name])
