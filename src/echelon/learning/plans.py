"""What one update trains on: index tensors over a rollout that is stored once and never duplicated.

A **unit** is what the network reads in one piece: a single row for an MLP, a sequence of L rows of one environment for
an LSTM. With horizon T there are C = T/L units per environment, numbered `chunk · N + environment`.

An **evaluation** is one unit under one policy, for one reason (its group). A plan lists them in a fixed order:

    own             every unit under the policy that collected it              C·N
    leader_borrows  the drawn follower's units under the leader                C·f
    follower_pull   the leader's units under each follower in turn             (M-1)·C·l

with l and f the environments of the leader and of one follower. For even blocks that makes 1, 1 + 1/M or 2 times N·T
rows.

Minibatches are stratified: each holds the same number of units of every policy. Borrowed evaluations reuse the units
that are in the minibatch anyway: its leader units are also evaluated under the followers, its units of the drawn
follower also under the leader. So a minibatch gathers its units once and computes the observation part of the first
layer once, for every algorithm, and policy ids and groups are constants.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from echelon.errors import UserError
from echelon.models.spread import Blocks, Sharing
from echelon.rollout.layout import LEADER, Layout

OWN, LEADER_BORROWS, FOLLOWER_PULL = 0, 1, 2
GROUP_NAMES = ("own", "leader_borrows", "follower_pull")


@dataclass(frozen=True)
class Minibatch:
    """Index tensors of one gradient step."""

    unit: Tensor
    """`[n]` units to gather, in blocks of policies."""
    evaluation: Tensor
    """`[B]` evaluations to train on: own, then leader_borrows, then follower_pull."""


class Plan:
    """The evaluations of one algorithm and how they are cut into minibatches."""

    def __init__(
        self, layout: Layout, horizon: int, length: int, *, borrows: bool, pulls: bool, minibatches: int | float
    ) -> None:
        """`minibatches` is their number if an int, or their rows as a multiple of the environments if a float."""
        self.layout, self.length, self.chunks = layout, length, horizon // length
        self._borrows, self._pulls = borrows and layout.followers > 0, pulls and layout.followers > 0
        self.own, self.borrowed, self.pulled = self._sizes(layout.leader_envs, layout.follower_envs)
        self.size = self.own + self.borrowed + self.pulled
        self._wanted = minibatches
        self.minibatches = minibatches = self._count(layout.leader_envs, layout.follower_envs)
        self._check_divides()
        device = layout.policy_id.device
        self.leader_units = self.chunks * layout.leader_envs // minibatches
        self.follower_units = self.chunks * layout.follower_envs // minibatches
        self.policy_id, self.group = self._columns(self.leader_units, self.follower_units, device)
        self.blocks = Blocks(layout.followers, self.leader_units, self.follower_units, self._borrows, self._pulls)
        self.counts = self.blocks.counts
        """Evaluations of each group in a minibatch, contiguous in this order."""

    def _sizes(self, leader: int, follower: int) -> tuple[int, int, int]:
        """Evaluations of each group, for blocks of this many environments."""
        followers = self.layout.followers
        own = leader + followers * follower
        return self.chunks * own, self.chunks * follower * self._borrows, self.chunks * leader * followers * self._pulls

    def _count(self, leader: int, follower: int) -> int:
        """Minibatches, for blocks of this many environments."""
        if isinstance(self._wanted, int):
            return self._wanted
        rows = sum(self._sizes(leader, follower)) * self.length / (leader + self.layout.followers * follower)
        return max(1, int(rows / self._wanted + 1e-9))  # a rounding error must not cost one

    def _check_divides(self) -> None:
        layout = self.layout
        parts = (self.chunks * layout.leader_envs, self.chunks * layout.follower_envs)
        if all(part % self.minibatches == 0 for part in parts):
            return
        count = self._count(1, 1)  # of blocks that are even, however large
        step = layout.policies * (count // math.gcd(count, self.chunks))
        below = layout.num_envs // step * step
        fits = " or ".join(str(n) for n in (below, below + step) if n > 0)
        raise UserError(
            f"{layout.num_envs} environments of {layout.policies} policies do not split into "
            f"{self.minibatches} equal minibatches; num_envs {fits} would"
        )

    def _columns(self, leader: int, follower: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Policy id and group `[B]` of the evaluations of a minibatch: the same in every one."""
        followers = torch.arange(1, self.layout.policies)
        ids = [torch.full((leader,), LEADER), followers.repeat_interleave(follower)]
        groups = [torch.full((len(ids[0]) + len(ids[1]),), OWN)]
        if self.borrowed:
            ids.append(torch.full((follower,), LEADER))
            groups.append(torch.full((follower,), LEADER_BORROWS))
        if self.pulled:
            ids.append(followers.repeat_interleave(leader))
            groups.append(torch.full((len(ids[-1]),), FOLLOWER_PULL))
        return torch.cat(ids).to(device), torch.cat(groups).to(device)

    def draw_follower(self, generator: torch.Generator) -> Tensor:
        """Policy id `[1]` of the follower the leader borrows from, drawn on the device."""
        high = max(self.layout.policies, 2)
        return torch.randint(1, high, (1,), generator=generator, device=self.layout.policy_id.device)

    def shuffle(self, follower: Tensor, generator: torch.Generator) -> Iterator[Minibatch]:
        """A fresh random cut into minibatches."""
        layout, device = self.layout, self.layout.policy_id.device
        leader = torch.randperm(self.chunks * layout.leader_envs, generator=generator, device=device)
        keys = (layout.followers, self.chunks * layout.follower_envs)
        followers = torch.rand(keys, generator=generator, device=device).argsort(dim=1)
        offset = layout.leader_envs + torch.arange(layout.followers, device=device)[:, None] * layout.follower_envs
        units = torch.cat(
            (
                self._split(self._unit(leader[None], layout.leader_envs, 0)),
                self._split(self._unit(followers, layout.follower_envs, offset)),
            ),
            dim=1,
        )
        evaluations = [units]
        if self.borrowed:
            drawn = followers.index_select(0, follower - 1)
            evaluations.append(self.own + self._split(drawn))
        if self.pulled:
            copies = torch.arange(layout.followers, device=device)[:, None] * (self.chunks * layout.leader_envs)
            evaluations.append(self.own + self.borrowed + self._split(copies + leader))
        for unit, evaluation in zip(units, torch.cat(evaluations, dim=1), strict=True):
            yield Minibatch(unit, evaluation)

    def _unit(self, local: Tensor, block: int, offset: Tensor | int) -> Tensor:
        """Units at positions `chunk · block + environment` of a block that starts at environment `offset`."""
        return local // block * self.layout.num_envs + offset + local % block

    def _split(self, blocks: Tensor) -> Tensor:
        """`[P, n]` positions of P blocks to `[minibatches, P·n/minibatches]`, every block shared out equally."""
        return blocks.unflatten(1, (self.minibatches, blocks.shape[1] // self.minibatches)).transpose(0, 1).flatten(1)

    def rows(self, unit: Tensor) -> Tensor:
        """Flat rollout rows `t · N + environment` of units: `[n] -> [L, n]`."""
        if self.length == 1:
            return unit[None]  # a unit is a row, and both are counted time first
        num_envs = self.layout.num_envs
        first = unit // num_envs * self.length * num_envs + unit % num_envs
        return first + torch.arange(self.length, device=unit.device)[:, None] * num_envs

    def sharing(self, follower: Tensor) -> Sharing:
        """How a minibatch's gathered units are laid out for its evaluations, with this follower drawn."""
        return Sharing(self.blocks, follower, self.blocks.source(follower))

    def by_unit(self, x: Tensor) -> Tensor:
        """A table over steps and environments, `[T, n, ...]`, by units: `[L, C·n, ...]`."""
        return x.unflatten(0, (self.chunks, self.length)).transpose(0, 1).flatten(1, 2)

    def in_order(self, own: Tensor, borrowed: Tensor | None, pulled: Tensor | None) -> Tensor:
        """One table over all evaluations, `[L, size, ...]`.

        own `[T, N, ...]`; borrowed `[T, f, ...]` on the follower's rows; pulled `[M-1, T, l, ...]` on the leader's.
        """
        parts = [self.by_unit(own)]
        if self.borrowed and borrowed is not None:
            parts.append(self.by_unit(borrowed))
        if self.pulled and pulled is not None:
            parts.extend(self.by_unit(copy) for copy in pulled)
        return torch.cat(parts, dim=1)

    def table(self, follower: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The plan in full: unit, policy id and group `[size]` of every evaluation, in order."""
        layout, device = self.layout, self.layout.policy_id.device
        units = torch.arange(self.own, device=device).unflatten(0, (self.chunks, layout.num_envs))
        unit, policy = [units.flatten()], [layout.policy_id.repeat(self.chunks)]
        if self.borrowed:
            unit.append(layout.follower_block(units, 1, follower).flatten())
            policy.append(torch.full_like(unit[-1], LEADER))
        if self.pulled:
            leader = layout.leader_block(units, 1).flatten()
            unit.append(leader.repeat(layout.followers))
            policy.append(torch.arange(1, layout.policies, device=device).repeat_interleave(len(leader)))
        counts = torch.tensor((self.own, self.borrowed, self.pulled), device=device)
        return torch.cat(unit), torch.cat(policy), torch.arange(3, device=device).repeat_interleave(counts)
