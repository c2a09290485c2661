"""Which units of a minibatch its evaluations read: contiguous blocks, so that sharing them is copying and adding up."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import Any

import torch
from torch import Tensor

DRAWN = -1
"""Stands for the follower that is drawn in every iteration."""

Pair = tuple[int, int]
"""A learner, and the policy whose units it learns from, which may be `DRAWN`."""


@dataclass(frozen=True)
class Blocks:
    """A minibatch of G networks of equal layout, with K policies each. Units lie network by network, policy by policy.

    The evaluations of a network are all its units, each under its own policy, then for each pair in turn the first of
    the source's units under the learner. Policies are numbered within their network.
    """

    networks: int
    units: tuple[int, ...]
    """Units of each policy of a network."""
    pairs: tuple[Pair, ...] = ()
    lent: tuple[int, ...] = ()
    """Units of each pair's source that its learner reads; all unless given."""

    @property
    def policies(self) -> int:
        return len(self.units)

    @property
    def own(self) -> int:
        """Units of a network."""
        return sum(self.units)

    @property
    def offsets(self) -> list[int]:
        """Where each policy's units begin in its network."""
        return [0, *accumulate(self.units)][:-1]

    @property
    def sizes(self) -> list[int]:
        """Evaluations of each pair. Followers that may be drawn all have equal numbers of units."""
        return list(self.lent) or [self.units[1 if source == DRAWN else source] for _, source in self.pairs]

    @property
    def starts(self) -> list[int]:
        """Where each pair's evaluations begin in its network."""
        return list(accumulate((self.own, *self.sizes)))[:-1]

    @property
    def evaluations(self) -> int:
        """Evaluations of a network."""
        return self.own + sum(self.sizes)

    @property
    def numbers(self) -> list[int]:
        """All fields as a list of integers, which a PyTorch operator can take."""
        triples = (number for pair, size in zip(self.pairs, self.sizes, strict=True) for number in (*pair, size))
        return [self.networks, self.policies, *self.units, *triples]

    @classmethod
    def from_numbers(cls, numbers: Sequence[int]) -> "Blocks":
        networks, policies, *rest = numbers
        triples = rest[policies:]
        pairs = tuple(zip(triples[::3], triples[1::3], strict=True))
        return cls(networks, tuple(rest[:policies]), pairs, tuple(triples[2::3]))

    def learners(self, device: torch.device) -> Tensor:
        """`[G, B]`: the policy id of each evaluation."""
        ids = torch.tensor((*range(self.policies), *(learner for learner, _ in self.pairs)))
        within = ids.repeat_interleave(torch.tensor((*self.units, *self.sizes)))
        return (torch.arange(self.networks)[:, None] * self.policies + within).to(device)

    def source(self, drawn: Tensor) -> Tensor:
        """`[G·B]`: the unit of each evaluation; `drawn` `[G]` is the follower of each network, by its policy id."""
        device = drawn.device
        network = torch.arange(self.networks, device=device)[:, None]
        parts = [torch.arange(self.own, device=device).expand(self.networks, -1)]
        for (_, source), size in zip(self.pairs, self.sizes, strict=True):
            if source == DRAWN:  # followers are all of one size
                first = self.units[0] + (drawn[:, None] - network * self.policies - 1) * self.units[1]
            else:
                first = torch.full_like(network, self.offsets[source])
            parts.append(first + torch.arange(size, device=device))
        return (torch.cat(parts, dim=1) + network * self.own).flatten()

    def gather_back(self, grad: Tensor, drawn: Tensor) -> Tensor:
        """The transpose of `Sharing.share`: `[L, G·B, ...]` to `[L, G·n, ...]`, a unit the sum of its evaluations."""
        own, rest = grad.unflatten(1, (self.networks, -1)).tensor_split((self.own,), dim=2)
        blocks = list(own.split(self.units, dim=2))
        readings = [(source, size) for (_, source), size in zip(self.pairs, self.sizes, strict=True)]
        for (source, size), alike in groupby(readings):  # torch 2.11 compiles it over a list only
            count = len(list(alike))
            part, rest = rest.tensor_split((count * size,), dim=2)
            part = part.unflatten(2, (count, size)).sum(2) if count > 1 else part
            missing = self.units[1 if source == DRAWN else source] - size
            if missing:  # units that were not lent
                part = torch.cat((part, part.new_zeros(*part.shape[:2], missing, *part.shape[3:])), dim=2)
            if source != DRAWN:
                blocks[source] = blocks[source] + part
                continue
            ids = torch.arange(self.networks * self.policies, device=grad.device).view(self.networks, -1)
            chosen = (ids == drawn[:, None]).to(grad.dtype).view(*ids.shape, *[1] * (part.dim() - 2))
            for policy in range(1, self.policies):
                blocks[policy] = torch.addcmul(blocks[policy], chosen[:, policy], part)
        return torch.cat(blocks, dim=2).flatten(1, 2)


@dataclass(frozen=True, eq=False)
class Sharing:
    """Blocks with the followers that were drawn."""

    blocks: Blocks
    drawn: Tensor
    """`[G]` policy ids, on the device."""
    source: Tensor
    """`[G·B]` the unit of each evaluation."""

    def share(self, x: Tensor) -> Tensor:
        """Units `[L, G·n, ...]` laid out for their evaluations `[L, G·B, ...]`."""
        if not self.blocks.pairs:
            return x
        if not x.requires_grad:
            return x.index_select(1, self.source)
        shared: Any = _Share.apply(x, self.source, self.drawn, self.blocks)
        return shared


class _Share(torch.autograd.Function):
    """`share`. Derived from indexing, its gradient would be a scatter; evaluations lie in blocks, so it is a sum."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, source: Tensor, drawn: Tensor, blocks: Blocks) -> Tensor:
        ctx.save_for_backward(drawn)
        ctx.blocks = blocks
        return x.index_select(1, source)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        (drawn,) = ctx.saved_tensors
        return ctx.blocks.gather_back(grads[0], drawn), None, None, None
