"""Which policy drives which environment. Only this file knows where a policy's environments are."""

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor

from echelon.device.capture import Source, draw
from echelon.errors import UserError
from echelon.ranks import ALONE, Ranks

LEADER = 0


class Layout:
    """N environments in contiguous blocks, network by network, and within each policy by policy, the leader first.

    All networks are alike. Within one, policies may have different numbers of environments; unless `sizes` says so,
    followers have equal numbers, and the remainder of the division goes to the leader.

    In a run on several ranks this is one rank's part; all ranks have the same layout.
    """

    def __init__(
        self,
        num_envs: int,
        policies: int,
        device: torch.device | str = "cpu",
        *,
        networks: int = 1,
        sizes: Sequence[int] = (),
        ranks: Ranks = ALONE,
    ) -> None:
        """`policies` is M, of all `networks` together; `sizes` are the environments of each policy of a network."""
        self.ranks = ranks
        if policies < 1:
            raise UserError(f"policies must be at least 1, not {policies}")
        if num_envs < policies:
            raise UserError(f"{policies} policies need at least {policies} environments, not {num_envs}")
        if policies % networks or num_envs % networks:
            below = max(num_envs // networks, policies // networks) * networks
            raise UserError(
                f"--num-envs {num_envs} does not divide between the {networks} members of a population; {below} would"
            )
        self.num_envs, self.policies, self.networks = num_envs, policies, networks
        self.each, self.envs = policies // networks, num_envs // networks
        """Policies and environments of one network."""
        follower = self.envs // self.each
        self.sizes = list(sizes) or [self.envs - (self.each - 1) * follower] + [follower] * (self.each - 1)
        if len(self.sizes) != self.each or sum(self.sizes) != self.envs or min(self.sizes) < 1:
            whose, given = "1 policy" if self.each == 1 else f"{self.each} policies", ", ".join(map(str, self.sizes))
            raise UserError(
                f"{whose} with {self.envs} environments cannot have {given} of them: one positive number each, which "
                "add up to all"
            )
        self.offsets = list(accumulate(self.sizes, initial=0))[:-1]
        """Where each policy's environments begin within its network."""
        within = torch.arange(self.each).repeat_interleave(torch.tensor(self.sizes))
        self.policy_id = (torch.arange(networks)[:, None] * self.each + within).flatten().to(device)
        """`[N]`"""
        self.first_env = torch.tensor([self.environments(policy).start for policy in range(policies)], device=device)
        """`[M]` where each policy's environments begin."""
        self._network = torch.arange(networks, device=device)

    @property
    def device(self) -> torch.device:
        return self.policy_id.device

    def divided(self, ranks: Ranks) -> "Layout":
        """The layout of one rank: an equal part of every policy's environments."""
        if any(size % ranks.size for size in self.sizes):
            step = self.policies * ranks.size
            below = self.num_envs // step * step
            fits = " or ".join(str(n) for n in (below, below + step) if n > 0)
            raise UserError(
                f"{self.num_envs} environments of {self.policies} policies do not divide between {ranks.size} ranks, "
                f"each with an equal part of every policy's; --num-envs {fits} would"
            )
        sizes = [size // ranks.size for size in self.sizes]
        part = self.num_envs // ranks.size
        return Layout(part, self.policies, self.device, networks=self.networks, sizes=sizes, ranks=ranks)

    def environments(self, policy: int) -> slice:
        """The environments of a policy, by its id among all M."""
        network, within = divmod(policy, self.each)
        first = network * self.envs + self.offsets[within]
        return slice(first, first + self.sizes[within])

    def block(self, x: Tensor, dim: int, within: int) -> Tensor:
        """Part of a tensor whose dimension `dim` runs over environments: those of one policy of every network."""
        if self.networks == 1:
            return x.narrow(dim, self.offsets[within], self.sizes[within])
        parts = x.unflatten(dim, (self.networks, self.envs)).narrow(dim + 1, self.offsets[within], self.sizes[within])
        return parts.flatten(dim, dim + 1)

    def drawn_block(self, x: Tensor, dim: int, drawn: Tensor) -> Tensor:
        """`block` for one follower of every network, drawn on the device: `drawn` `[G]` has their policy ids."""
        rows = self.first_env[drawn][:, None] + torch.arange(self.sizes[1], device=self.device)
        return x.index_select(dim, rows.flatten())

    def draw_followers(self, generator: Source) -> Tensor:
        """Draw a follower of every network `[G]` on the device; the value is unused without followers."""
        high = max(self.each, 2)

        def sample(one: torch.Generator, networks: int) -> Tensor:
            return torch.randint(1, high, (networks,), generator=one, device=self.device)

        within = draw(generator, self.networks, sample)
        return self._network * self.each + within

    def ids(self, within: int, rows: int) -> Tensor:
        """`[G·rows]`: the ids of one policy of every network, each repeated `rows` times."""
        return (self._network * self.each + within).repeat_interleave(rows)

    def spread_rows(self, horizon: int, count: int) -> Tensor:
        """Flat rows `t · N + environment` `[M, S]`, up to `count` of each policy, over all environments and steps."""
        smallest = min(self.sizes)
        count = min(count, horizon * smallest)
        # The step cycles while the environment rises, so at most a whole cycle falls on one environment: no row twice.
        row = torch.arange(count, device=self.device)
        step, env = row % horizon, row * smallest // count
        return step * self.num_envs + self.first_env[:, None] + env

    def policy_means(self, x: Tensor) -> Tensor:
        """Mean over each policy's environments: `[N] -> [M]`. A value that is not finite affects only its policy."""
        blocks = x.float().unflatten(-1, (self.networks, self.envs)).split(self.sizes, dim=-1)
        return torch.stack([block.mean(-1) for block in blocks], dim=-1).flatten()
