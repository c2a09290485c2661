"""Which environment is driven by which policy. The only place that knows where a policy's block lies."""

import torch
from torch import Tensor

from echelon.errors import UserError

LEADER = 0


class Layout:
    """N environments in M contiguous blocks, the leader's first.

    Followers' blocks are all of one size, so that what the leader borrows has the same shape whichever follower is
    drawn; what the division leaves over goes to the leader.
    """

    def __init__(self, num_envs: int, policies: int, device: torch.device | str = "cpu") -> None:
        if policies < 1:
            raise UserError(f"policies must be at least 1, not {policies}")
        if num_envs < policies:
            raise UserError(f"{policies} policies need at least {policies} environments, not {num_envs}")
        self.num_envs = num_envs
        self.policies = policies
        self.followers = policies - 1
        self.follower_envs = num_envs // policies
        self.leader_envs = num_envs - self.followers * self.follower_envs
        sizes = torch.tensor(self.sizes)
        self.policy_id = torch.repeat_interleave(torch.arange(policies), sizes).to(device)
        one_hot = torch.nn.functional.one_hot(self.policy_id, policies).T.float()
        self._average = one_hot / one_hot.sum(1, keepdim=True)

    @property
    def sizes(self) -> list[int]:
        """Environments of each policy."""
        return [self.leader_envs] + [self.follower_envs] * self.followers

    def leader_block(self, x: Tensor, dim: int) -> Tensor:
        """The leader's part of a tensor whose dimension `dim` runs over environments."""
        return x.narrow(dim, 0, self.leader_envs)

    def follower_blocks(self, x: Tensor, dim: int) -> Tensor:
        """The followers' part, `dim` split into (followers, environments of one)."""
        part = x.narrow(dim, self.leader_envs, self.followers * self.follower_envs)
        return part.unflatten(dim, (self.followers, self.follower_envs))

    def follower_block(self, x: Tensor, dim: int, follower: Tensor) -> Tensor:
        """The part of one follower, drawn on the device: `follower` is a `[1]` tensor of its policy id."""
        return self.follower_blocks(x, dim).index_select(dim, follower - 1).squeeze(dim)

    def entropy_coefs(self, coef: float, scale: float) -> Tensor:
        """Entropy bonus of each policy `[M]`: `coef` for all, plus 0 for the leader rising linearly to `scale` / 2."""
        ladder = torch.arange(self.policies, device=self.policy_id.device).double() / max(self.followers, 1)
        return coef + 0.5 * scale * ladder

    def policy_means(self, x: Tensor) -> Tensor:
        """Mean over each policy's environments: `[N] -> [M]`."""
        return self._average @ x.float()
