"""Adam on all parameters as one flat tensor `[G, P]`, with a rate for each network that lives on the device."""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adam import adam

from echelon.device.fusion import fused
from echelon.envs.contract import State
from echelon.models.flat import aligned_slices


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
    """PyTorch's Adam with its defaults, for G stacked networks. `rate` `[G]` may be moved in place at any time.

    The parameters, `[G, ...]` each, become views of one flat tensor and their gradients views of another. Clipping a
    network's global norm and stepping are then a handful of operations, however many layers there are. PyTorch's fused
    kernel does the stepping, or with `fuse`, where there is a compiler, all of it is compiled: that kernel gives 65,536
    numbers to each multiprocessor, so with a network of this size most have nothing to do.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], rate: float, *, fuse: bool = False) -> None:
        self._parameters = list(parameters)
        first = self._parameters[0].detach()
        self.networks = first.shape[0]
        slices, length = aligned_slices(p[0].numel() for p in self._parameters)
        self.flat = first.new_zeros(self.networks, length)
        self.gradient = torch.zeros_like(self.flat)
        self._gradients: list[Tensor] = []
        for p, place in zip(self._parameters, slices, strict=True):
            values = self.flat[:, place].unflatten(1, p.shape[1:])
            p.data = values.copy_(p.detach())
            p.grad = self.gradient[:, place].unflatten(1, p.shape[1:])
            self._gradients.append(p.grad)
        self.rate = torch.full((self.networks,), rate, device=self.flat.device, dtype=self.flat.dtype)
        # Made here, so that loading can be in place: a CUDA graph may know them.
        self.steps = torch.zeros(self.networks, device=self.flat.device)
        self.mean, self.square = torch.zeros_like(self.flat), torch.zeros_like(self.flat)
        self.descend = fused(self._descend, self.flat.device, enabled=fuse)

    def step(self, loss: Tensor, clip_norm: float | Tensor = math.inf, active: Tensor | None = None) -> Tensor:
        """One step of every network down its gradient of `loss`, its global norm clipped to `clip_norm`, a number or
        one of each; returns the norms `[G]` before clipping. Networks that are not `active` `[G]` stay as they are."""
        self.backward(loss)
        return self.descend(clip_norm, active)

    def backward(self, loss: Tensor) -> None:
        """The gradient of `loss`, and of nothing before it."""
        gradients = torch.autograd.grad(loss, self._parameters, allow_unused=True, materialize_grads=True)
        torch._foreach_copy_(self._gradients, gradients)  # pyright: ignore[reportPrivateImportUsage]

    def _descend(self, clip_norm: float | Tensor = math.inf, active: Tensor | None = None) -> Tensor:
        """One step down the gradient that is there."""
        norm = torch.linalg.vector_norm(self.gradient, dim=1)
        limit = clip_norm.to(norm.dtype) if isinstance(clip_norm, Tensor) else clip_norm
        # Not in place: the padding between parameters stays zero, also where a gradient is not finite.
        gradient = self.gradient * (limit * (norm + 1e-6).reciprocal()).clamp(max=1.0)[:, None]
        for network in range(self.networks):
            going = None if active is None else active[network]
            self._step_one(network, gradient[network], going)
        return norm

    def _step_one(self, network: int, gradient: Tensor, active: Tensor | None) -> None:
        tensors = self.flat[network], self.mean[network], self.square[network], self.steps[network]
        rate = self.rate[network]
        if not torch.compiler.is_compiling():
            skip = None if active is None else (~active).to(self.steps.dtype)
            adam_step(tensors[0], gradient, *tensors[1:], rate, skip)
            return
        # PyTorch's kernel counts in float32 and corrects for the count in float64.
        values, mean, square, step = (x.clone() for x in tensors)
        step = step.double()
        adam_step(values, gradient, mean, square, step, rate, kernel=False)
        for x, new in zip(tensors, (values, mean, square, step.to(self.steps.dtype)), strict=True):
            x.copy_(new if active is None else torch.where(active, new, x))

    def copy(self, donor: int, network: int) -> None:
        """A network goes on with another's moments; its rate is a hyperparameter and stays."""
        for x in (self.mean, self.square, self.steps):
            x[network].copy_(x[donor])

    def state_dict(self) -> State:
        """The rates, the step counts and both moments. PyTorch's own would come back with a rate that is not ours."""
        return {"rate": self.rate, "steps": self.steps, "mean": self.mean, "square": self.square}

    def load_state_dict(self, state: Any) -> None:
        for name, x in self.state_dict().items():
            assert isinstance(x, Tensor)
            x.copy_(state[name])
