"""Adam on all parameters as one flat tensor `[G, P]`, and the rule that moves its rates. All on the device."""

import math
from collections.abc import Iterable
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adam import adam

from echelon.device.fusion import fused
from echelon.envs.contract import State
from echelon.ranks import ALONE, Ranks

BETAS, EPSILON = (0.9, 0.999), 1e-8
ALIGNMENT = 32
"""Each parameter starts at a multiple of this many numbers. Matrix products on CUDA read 16 bytes at a time if a matrix
starts at a multiple of that, and are up to three times slower if not."""
FACTOR = 1.5
LOWEST, HIGHEST = 1e-6, 1e-2


class Adam:
    """PyTorch's Adam with its defaults, for G stacked networks. `rate` `[G]` may be moved in place at any time.

    The parameters, `[G, ...]` each, become views of one flat tensor and their gradients views of another. Clipping a
    network's global norm and stepping are then a handful of operations, however many layers there are. PyTorch's fused
    kernel does the stepping, or with `fuse`, where there is a compiler, all of it is compiled: that kernel gives 65,536
    numbers to each multiprocessor, so with a network of this size most have nothing to do.

    Each rank computes the gradient of its own rows, and all step down the mean.
    """

    def __init__(
        self, parameters: Iterable[nn.Parameter], rate: float, *, fuse: bool = False, ranks: Ranks = ALONE
    ) -> None:
        self._parameters, self.ranks = list(parameters), ranks
        first = self._parameters[0].detach()
        self.networks = first.shape[0]
        slices, length = aligned_slices(p[0].numel() for p in self._parameters)
        self.flat = first.new_zeros(self.networks, length)
        self._exchanged = self.flat.new_zeros(self.flat.numel() + self.networks)
        """The gradient, and room for a number per network that ranks exchange with it."""
        self.gradient = self._exchanged[: -self.networks].view_as(self.flat)
        self._gradients: list[Tensor] = []
        for p, place in zip(self._parameters, slices, strict=True):
            values = self.flat[:, place].unflatten(1, p.shape[1:])
            p.data = values.copy_(p.detach())
            p.grad = self.gradient[:, place].unflatten(1, p.shape[1:])
            self._gradients.append(p.grad)
        self.rate = torch.full((self.networks,), rate, device=self.flat.device, dtype=self.flat.dtype)
        # Made here, so that loading is in place: a CUDA graph may hold their addresses.
        self.steps = torch.zeros(self.networks, device=self.flat.device)
        self.mean, self.square = torch.zeros_like(self.flat), torch.zeros_like(self.flat)
        self.descend = fused(self._descend, self.flat.device, enabled=fuse)

    def step(self, loss: Tensor, clip_norm: float | Tensor = math.inf, active: Tensor | None = None) -> Tensor:
        """Step every network down its gradient of `loss`, its global norm clipped to `clip_norm`, one number or `[G]`;
        returns the norms `[G]` before clipping. Networks that are not `active` `[G]` do not change."""
        self.backward(loss)
        self.ranks.mean_(self._exchanged)
        return self.descend(clip_norm, active)

    def backward(self, loss: Tensor) -> None:
        """Overwrite the stored gradients with those of `loss`; nothing accumulates."""
        gradients = torch.autograd.grad(loss, self._parameters, allow_unused=True, materialize_grads=True)
        torch._foreach_copy_(self._gradients, gradients)  # pyright: ignore[reportPrivateImportUsage]

    def exchange(self, rider: Tensor) -> Tensor:
        """Replace the gradient by the mean over ranks; returns the mean of `rider` `[G]`, sent in the same buffer."""
        return self.ranks.mean_with(self._exchanged, rider)

    def _descend(self, clip_norm: float | Tensor = math.inf, active: Tensor | None = None) -> Tensor:
        """Step down the stored gradient."""
        norm = torch.linalg.vector_norm(self.gradient, dim=1)
        limit = clip_norm.to(norm.dtype) if isinstance(clip_norm, Tensor) else clip_norm
        # Not in place: the padding between parameters stays zero, also where a gradient is not finite.
        gradient = self.gradient * (limit * (norm + 1e-6).reciprocal()).clamp(max=1.0)[:, None]
        if torch.compiler.is_compiling():
            self._step_all(gradient, active)
        else:
            for network in range(self.networks):
                self._step_one(network, gradient[network], None if active is None else active[network])
        return norm

    def _step_one(self, network: int, gradient: Tensor, active: Tensor | None) -> None:
        """Step by PyTorch's fused kernel, which skips inactive networks on the device, via its `found_inf`."""
        adam(
            [self.flat[network]],
            [gradient],
            [self.mean[network]],
            [self.square[network]],
            [],
            [self.steps[network]],
            fused=True,
            found_inf=None if active is None else (~active).float(),
            amsgrad=False,
            beta1=BETAS[0],
            beta2=BETAS[1],
            lr=self.rate[network],
            weight_decay=0.0,
            eps=EPSILON,
            maximize=False,
        )

    def _step_all(self, gradient: Tensor, active: Tensor | None) -> None:
        """The same for all networks at once, to be compiled. Like the kernel, it corrects biases in float64."""
        steps = self.steps + 1
        first, second = (1 - beta ** steps.double() for beta in BETAS)
        rate, root = ((self.rate / first).to(gradient.dtype), second.sqrt().to(gradient.dtype))
        mean = self.mean.lerp(gradient, 1 - BETAS[0])
        square = self.square * BETAS[1] + gradient.square() * (1 - BETAS[1])
        values = self.flat - rate[:, None] * mean / (square.sqrt() / root[:, None] + EPSILON)
        for x, new in ((self.flat, values), (self.mean, mean), (self.square, square), (self.steps, steps)):
            going = None if active is None else active.view(-1, *[1] * (x.dim() - 1))
            x.copy_(new if going is None else torch.where(going, new, x))

    def copy(self, donor: int, network: int) -> None:
        """Copy the donor's moments to a network; its rate is a hyperparameter and stays."""
        for x in (self.mean, self.square, self.steps):
            x[network].copy_(x[donor])

    def state_dict(self) -> State:
        """Rates, step counts and both moments. Not PyTorch's own, whose rate is not the one in use."""
        return {"rate": self.rate, "steps": self.steps, "mean": self.mean, "square": self.square}

    def load_state_dict(self, state: Any) -> None:
        for name, x in self.state_dict().items():
            assert isinstance(x, Tensor)
            x.copy_(state[name])


def aligned_slices(sizes: Iterable[int]) -> tuple[list[slice], int]:
    """A slice for each size, aligned, and the length of the whole. The gaps are padding and stay zero."""
    sizes = list(sizes)
    padded = [-(-size // ALIGNMENT) * ALIGNMENT for size in sizes]
    starts = list(accumulate(padded, initial=0))
    return [slice(start, start + size) for start, size in zip(starts, sizes, strict=False)], starts[-1]


def adapt(rate: Tensor, kl: Tensor, threshold: float | Tensor) -> Tensor:
    """The next rate: divided by 1.5 above twice the threshold, multiplied by 1.5 below half of it, within limits."""
    slower = (rate / FACTOR).clamp(min=LOWEST)
    faster = (rate * FACTOR).clamp(max=HIGHEST)
    return torch.where(kl > 2 * threshold, slower, torch.where(kl < 0.5 * threshold, faster, rate))


def scheduling_kl(mean: Tensor, log_std: Tensor, mean_ref: Tensor, log_std_ref: Tensor) -> Tensor:
    """The reference's KL(new ‖ ref) per row, with its two 1e-5 terms: `[..., A] -> [...]`.

    The terms keep it finite and bias it down at small sigma, which lets the rate rise; thresholds were tuned with them.
    `diagnostics.gaussian_kl` is the exact one.
    """
    std, std_ref = log_std.exp(), log_std_ref.exp()
    spread = (std.square() + (mean_ref - mean).square()) / (2 * (std_ref.square() + 1e-5))
    return (torch.log(std_ref / std + 1e-5) + spread - 0.5).sum(-1)
