"""What one update trains on: index tensors over a rollout that is stored once and never duplicated.

A **unit** is what the network reads in one piece: a single row for an MLP, a sequence of L rows of one environment for
an LSTM. With horizon T there are C = T/L units per environment, numbered `chunk · N + environment`.

An **evaluation** is one unit under one policy, for one reason, its **group**. Every policy learns from its own units;
further groups say by pairs who learns from whose:

    own             every unit under the policy that collected it
    leader_borrows  the drawn follower's units under the leader             (SAPG, CPO)
    follower_pull   the leader's units under each follower in turn          (CPO)

G networks have the same plan each, so tables are `[L, G, S]` with the S evaluations of a network in this order.

Minibatches are stratified: each holds the same number of units of every policy. Borrowed evaluations reuse the units
that are in the minibatch anyway. So a minibatch gathers its units once and computes the observation part of the first
layer once, for every algorithm, and policy ids and groups are constants. One network's columns in a minibatch of CPO,
with the leader 0 and the followers 1 and 2, of which 2 is drawn:

             own                     leader_borrows   follower_pull
    unit of  | 0 0 0 | 1 1 | 2 2 |   | 2 2 |          | 0 0 0 | 0 0 0 |
    learner  | 0 0 0 | 1 1 | 2 2 |   | 0 0 |          | 1 1 1 | 2 2 2 |
                                     a PairBlock      a PairBlock each
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise

import torch
from torch import Tensor

from echelon.device.capture import Source, draw
from echelon.errors import UserError
from echelon.models.sharing import DRAWN, Blocks, Pair, Sharing
from echelon.rollout.layout import LEADER, Layout


@dataclass(frozen=True)
class Group:
    """Evaluations for one reason."""

    name: str
    pairs: Callable[[int], Sequence[Pair]]
    """From the number of policies to pairs (learner, source), by policy number; the source may be `DRAWN`."""
    trains_critic: bool = True
    """Whether critic, bounds and entropy learn from them too; groups that do come first."""
    part: Callable[[int], int] = lambda policies: 1
    """1/part of each source's units is lent per minibatch, a different subset each time."""


OWN = Group("own", lambda policies: ())


def leader_from_one_follower(policies: int) -> Sequence[Pair]:
    """The leader learns from one follower, drawn in every iteration."""
    return [(LEADER, DRAWN)] if policies > 1 else ()


def leader_from_all_followers(policies: int) -> Sequence[Pair]:
    """The leader learns from every follower."""
    return [(LEADER, follower) for follower in range(1, policies)]


def followers_from_leader(policies: int) -> Sequence[Pair]:
    """Every follower learns from the leader."""
    return [(follower, LEADER) for follower in range(1, policies)]


@dataclass(frozen=True)
class Minibatch:
    """Index tensors of one gradient step."""

    unit: Tensor
    """`[G·n]` units to gather, in blocks of policies."""
    evaluation: Tensor
    """`[G·B]` evaluations to train on, as places in a table whose networks lie one after another, `G·S`."""


@dataclass(frozen=True)
class PairBlock:
    """The evaluations of one pair in one network: units of the source under the learner."""

    group: Group
    learner: int
    source: int
    """Numbered within the network, as the learner is; or `DRAWN`."""
    start: int
    """Place of the first in the network's table."""
    size: int
    """How many the table has: all units of the source."""
    lent: int
    """How many of them a minibatch has."""

    @property
    def pair(self) -> Pair:
        return self.learner, self.source


class Plan:
    """The evaluations of one algorithm and how they are cut into minibatches."""

    def __init__(
        self,
        layout: Layout,
        horizon: int,
        length: int,
        groups: Sequence[Group] = (),
        *,
        minibatches: int | float,
    ) -> None:
        """`minibatches` is their number if an int, or their rows as a multiple of the environments if a float."""
        self.layout, self.length, self.chunks = layout, length, horizon // length
        kinds = [(group, list(group.pairs(layout.each))) for group in groups]
        self._check_pairs(kinds)
        self.groups = [OWN, *(group for group, pairs in kinds if pairs)]
        self._asked = [(group, pair) for group, pairs in kinds for pair in pairs]
        self._wanted = minibatches
        self.minibatches = self._count(layout.sizes)
        self._check_divides()
        units = [self.chunks * size // self.minibatches for size in layout.sizes]
        own = self.chunks * layout.envs
        self.pairs: list[PairBlock] = []
        """In the order of their evaluations."""
        self.size = own
        """Evaluations of a network."""
        for group, (learner, source) in self._asked:
            size, in_minibatch = self.chunks * _of_source(layout.sizes, source), _of_source(units, source)
            lent = max(1, in_minibatch // group.part(layout.each))
            self.pairs.append(PairBlock(group, learner, source, self.size, size, lent))
            self.size += size
        lent = tuple(block.lent for block in self.pairs)
        self.blocks = Blocks(layout.networks, tuple(units), tuple(block.pair for block in self.pairs), lent)
        by_group = [[block for block in self.pairs if block.group is group] for group in self.groups[1:]]
        self.sizes = [own, *(sum(block.size for block in blocks) for blocks in by_group)]
        """Evaluations of each group, for one network."""
        counts = [sum(units), *(sum(block.lent for block in blocks) for blocks in by_group)]
        spans = pairwise(accumulate(counts, initial=0))
        self.columns = {group.name: slice(*span) for group, span in zip(self.groups, spans, strict=True)}
        """Where each group lies among the evaluations of a minibatch, for one network."""
        trained = [group.trains_critic for group in self.groups]
        if sorted(trained, reverse=True) != trained:
            raise UserError("groups that train the critic must come before those that do not")
        self.learns = slice(0, sum(count for count, trains in zip(counts, trained, strict=True) if trains))
        self.policy_id = self.blocks.learners(layout.device)
        """`[G, B]` the learner of each evaluation of a minibatch: the same in every one."""

    def _check_pairs(self, kinds: Sequence[tuple[Group, Sequence[Pair]]]) -> None:
        """Raise a `UserError` for groups that cannot form a plan."""
        policies = range(self.layout.each)
        for group, pairs in kinds:
            if [other.name for other in (OWN, *(each for each, _ in kinds))].count(group.name) > 1:
                raise UserError(f"two groups are called {group.name}; give each a name of its own")
            for learner, source in pairs:
                if (
                    learner not in policies
                    or source not in (DRAWN, *policies)
                    or (source == DRAWN and len(policies) < 2)
                ):
                    raise UserError(
                        f"{group.name} has the pair ({learner}, {source}), but there are {len(policies)} policies"
                    )
        draws = any(source == DRAWN for _, pairs in kinds for _, source in pairs)
        if draws and len(set(self.layout.sizes[1:])) > 1:
            raise UserError(
                "followers of which one is drawn need equal numbers of environments, not "
                f"{', '.join(map(str, self.layout.sizes[1:]))}"
            )

    def _count(self, sizes: Sequence[int]) -> int:
        """Number of minibatches, for policies with `sizes` environments."""
        if isinstance(self._wanted, int):
            return self._wanted
        each = self.layout.each
        lent = sum(_of_source(sizes, source) / group.part(each) for group, (_, source) in self._asked)
        rows = self.chunks * (sum(sizes) + lent) * self.length / sum(sizes)
        return max(1, int(rows / self._wanted + 1e-9))  # tolerate rounding

    def _check_divides(self) -> None:
        layout, ranks = self.layout, self.layout.ranks.size
        if all(self.chunks * size % self.minibatches == 0 for size in layout.sizes):
            return
        count = self._count([1] * layout.each)  # for blocks of equal size
        step = layout.policies * (count // math.gcd(count, self.chunks)) * ranks
        total = layout.num_envs * ranks
        below = total // step * step
        fits = " or ".join(str(n) for n in (below, below + step) if n > 0)
        where = f" on each of {ranks} ranks" if ranks > 1 else ""
        raise UserError(
            f"{total} environments of {layout.policies} policies do not split into "
            f"{self.minibatches} equal minibatches{where}; num_envs {fits} would"
        )

    def shuffle(self, drawn: Tensor, generator: Source) -> Iterator[Minibatch]:
        """A fresh random cut into minibatches; `drawn` `[G]` is the follower of each network that is borrowed from."""
        orders = self._orders(generator)
        network = torch.arange(self.layout.networks, device=drawn.device)[:, None, None]
        units, evaluations = [], []
        for order, size, offset in zip(orders, self.layout.sizes, self.layout.offsets, strict=True):
            chunk, env = order // size, offset + order % size
            units.append(chunk * self.layout.num_envs + network * self.layout.envs + env)
            evaluations.append(chunk * self.layout.envs + env)
        for block in self.pairs:
            if block.source == DRAWN:
                among = torch.stack(orders[1:], dim=1)
                chosen = among[network.flatten(), drawn - network.flatten() * self.layout.each - 1]
            else:
                chosen = orders[block.source]
            evaluations.append(block.start + chosen[..., : block.lent])
        unit = torch.cat(units, dim=2).transpose(0, 1).flatten(1)
        evaluation = (torch.cat(evaluations, dim=2) + network * self.size).transpose(0, 1).flatten(1)
        for k in range(self.minibatches):
            yield Minibatch(unit[k], evaluation[k])

    def _orders(self, generator: Source) -> list[Tensor]:
        """For each policy of a network a random order of its units, cut into minibatches: `[G, minibatches, n]`."""
        orders: list[Tensor] = []
        networks, device = self.layout.networks, self.layout.device
        for size, alike in groupby(self.layout.sizes):
            count, units = len(list(alike)), self.chunks * size

            def sample(one: torch.Generator, networks: int, count: int = count, units: int = units) -> Tensor:
                if networks == count == 1:
                    return torch.randperm(units, generator=one, device=device).view(1, 1, -1)
                return torch.rand((networks, count, units), generator=one, device=device).argsort(dim=-1)

            order = draw(generator, networks, sample)
            orders += order.unflatten(2, (self.minibatches, -1)).unbind(1)
        return orders

    def rows(self, unit: Tensor) -> Tensor:
        """Flat rollout rows `t · N + environment` of units: `[n] -> [L, n]`."""
        if self.length == 1:
            return unit[None]  # a unit is a row, and both are counted time first
        num_envs = self.layout.num_envs
        first = unit // num_envs * self.length * num_envs + unit % num_envs
        return first + torch.arange(self.length, device=unit.device)[:, None] * num_envs

    def sharing(self, drawn: Tensor) -> Sharing:
        """How a minibatch's gathered units are laid out for its evaluations."""
        return Sharing(self.blocks, drawn, self.blocks.source(drawn))

    def source(self, x: Tensor, source: int, drawn: Tensor) -> Tensor:
        """The environments of a pair's source: `[T, N, ...]` to `[T, G·n, ...]`."""
        return self.layout.drawn_block(x, 1, drawn) if source == DRAWN else self.layout.block(x, 1, source)

    def table(self, own: Tensor, borrowed: Sequence[Tensor]) -> Tensor:
        """All evaluations in order, `[L, G, S, ...]`: own `[T, N, ...]`, then one `[T, G·n, ...]` for each pair."""
        return torch.cat([self._by_unit(x) for x in (own, *borrowed)], dim=2)

    def _by_unit(self, x: Tensor) -> Tensor:
        """`[T, G·n, ...]` by units: `[L, G, C·n, ...]`."""
        x = x.unflatten(0, (self.chunks, self.length)).unflatten(2, (self.layout.networks, -1))
        return x.movedim((1, 2), (0, 1)).flatten(2, 3)


def _of_source(sizes: Sequence[int], source: int) -> int:
    """The source's number among those of all policies; followers of which one is drawn have the same."""
    return sizes[1 if source == DRAWN else source]
