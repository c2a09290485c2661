"""What follows the first layer's product: units are laid out for their evaluations, conditioned and activated.

And the layers after it, whose activation takes the same kernels.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import elu, linear

from echelon.models.lookup import lookup
from echelon.models.product import product


class Blocks(NamedTuple):
    """Which units the evaluations of a minibatch read, as a plan cuts them: contiguous blocks.

    Units are the leader's, then each follower's. Evaluations are all of them in that order, then the drawn follower's
    under the leader if it `borrows`, then the leader's under each follower in turn if it `pulls`.
    """

    followers: int
    leader_units: int
    follower_units: int
    borrows: bool
    pulls: bool

    @property
    def counts(self) -> tuple[int, int, int]:
        """Evaluations: own, borrowed, pulled."""
        own = self.leader_units + self.followers * self.follower_units
        return own, self.borrows * self.follower_units, self.pulls * self.followers * self.leader_units

    def source(self, follower: Tensor) -> Tensor:
        """`[B]`: the unit of each evaluation."""
        device = follower.device
        parts = [torch.arange(self.counts[0], device=device)]
        if self.borrows:
            first = self.leader_units + (follower - 1) * self.follower_units
            parts.append(first + torch.arange(self.follower_units, device=device))
        if self.pulls:
            parts.append(torch.arange(self.leader_units, device=device).repeat(self.followers))
        return torch.cat(parts)

    def gather_back(self, grad: Tensor, follower: Tensor) -> Tensor:
        """The transpose of `Sharing.share`: `[L, B, ...] -> [L, n, ...]`, each unit the sum of its evaluations."""
        own, borrowed, pulled = grad.split(self.counts, dim=1)
        leader, followers = own.split((self.leader_units, self.follower_units * self.followers), dim=1)
        if self.pulls:
            leader = leader + pulled.unflatten(1, (self.followers, self.leader_units)).sum(1)
        if self.borrows:
            blocks = followers.unflatten(1, (self.followers, self.follower_units))
            drawn = torch.arange(1, self.followers + 1, device=grad.device) == follower
            drawn = drawn.to(grad.dtype).view(-1, *[1] * (blocks.dim() - 2))
            followers = torch.addcmul(blocks, drawn, borrowed.unsqueeze(1)).flatten(1, 2)
        return torch.cat((leader, followers), dim=1)


@dataclass(frozen=True, eq=False)
class Sharing:
    """Blocks, and the follower that was drawn."""

    blocks: Blocks
    follower: Tensor
    """`[1]` its policy id, on the device."""
    source: Tensor
    """`[B]` the unit of each evaluation."""

    def share(self, x: Tensor) -> Tensor:
        """Units `[L, n, ...]` laid out for their evaluations `[L, B, ...]`."""
        if not self.blocks.borrows and not self.blocks.pulls:
            return x
        if not x.requires_grad:
            return x.index_select(1, self.source)
        shared: Any = _Share.apply(x, self.source, self.follower, self.blocks)
        return shared


class _Share(torch.autograd.Function):
    """`share`. Derived from indexing, its gradient would be a scatter; evaluations lie in blocks, so it is a sum."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, source: Tensor, follower: Tensor, blocks: Blocks) -> Tensor:
        ctx.save_for_backward(follower)
        ctx.blocks = blocks
        return x.index_select(1, source)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        (follower,) = ctx.saved_tensors
        return ctx.blocks.gather_back(grads[0], follower), None, None, None


KINDS = (torch.float32, torch.bfloat16)
"""What the kernel, which adds up in float32, is good for."""


def spread(
    projected: Tensor, cond: Tensor | None, policy_id: Tensor, sharing: Sharing | None, *, activate: bool
) -> Tensor:
    """`share(projected) + cond[policy_id]`, through ELU if `activate`: `[L, n, W]` to `[L, B, W]`.

    cond `[M, W]`, a row per policy; policy_id `[B]`. Without a `sharing`, units are evaluations. What is compiled for
    CUDA takes one kernel each way (`spread_kernel.py`), to which `policy_id` is no news: the sharing has it.
    """
    if sharing is not None and cond is not None and _has_kernel(projected):
        from echelon.models.spread_kernel import spread_in_one  # Triton's only import here: not every machine has it

        return spread_in_one(projected, cond, sharing, activate)
    x = projected if sharing is None else sharing.share(projected)
    if cond is not None:
        x = x + lookup(cond, policy_id)
    return elu(x) if activate else x


def dense(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A layer, `elu(x·Wᵀ + b)`: `[L, B, V]` to `[L, B, W]`.

    Compiled for CUDA it takes the kernels of `spread`: the backward one adds up the bias's gradient on its way.
    """
    if _has_kernel(x):
        from echelon.models.spread_kernel import activate_in_one

        if torch.is_autocast_enabled(x.device.type):  # which would not see the product of ours
            return activate_in_one(linear(x, weight), bias)
        return activate_in_one(product(x, weight), bias)
    return elu(linear(x, weight, bias), inplace=True)


def _has_kernel(x: Tensor) -> bool:
    """Whoever compiles has found Triton."""
    return torch.compiler.is_compiling() and x.is_cuda and x.dtype in KINDS
