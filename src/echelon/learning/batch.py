"""What a loss is computed from: one minibatch of evaluations, and what the network now says about them."""

from dataclasses import dataclass, replace

from torch import Tensor

from echelon.models.actor_critic import Output


@dataclass
class Batch:
    """`[L, B]` tensors whose columns are the groups one after another, so a group is a slice and never a mask."""

    counts: tuple[int, int, int]
    """Columns of own, leader_borrows, follower_pull."""
    policy_id: Tensor
    """`[B]` the learning policy."""
    action: Tensor
    """`[L, B, A]`"""
    old_log_prob: Tensor
    """Under the policy that collected the row."""
    advantage: Tensor
    """Normalised."""
    returns: Tensor
    """In the critic's units, as `old_value`."""
    old_value: Tensor
    centre: Tensor
    """Centre of the clip interval."""
    output: Output
    log_prob: Tensor
    """Under the learning policy, with gradient."""
    leader_log_prob: Tensor | None = None
    """Of own rows under the leader, without gradient; only where the algorithm asks for it."""

    def detached(self) -> "Batch":
        """The same numbers without gradient."""
        return replace(self, output=self.output.detached(), log_prob=self.log_prob.detach())

    @property
    def rows(self) -> int:
        """Rows over which every mean runs."""
        return self.action.shape[0] * self.action.shape[1]

    @property
    def own(self) -> slice:
        return slice(0, self.counts[0])

    @property
    def borrows(self) -> slice:
        return slice(self.counts[0], self.counts[0] + self.counts[1])

    @property
    def learns(self) -> slice:
        """Own and borrowed rows: those that train critic, bounds and entropy."""
        return slice(0, self.counts[0] + self.counts[1])

    @property
    def pulls(self) -> slice:
        return slice(self.counts[0] + self.counts[1], sum(self.counts))

    @property
    def log_ratio(self) -> Tensor:
        """log π_learner - log π_collector,old `[L, B]`."""
        return self.log_prob - self.old_log_prob
