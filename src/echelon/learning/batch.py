"""The input of a loss: one minibatch of evaluations, and the networks' output for them."""

from dataclasses import dataclass, replace

from torch import Tensor

from echelon.learning.plans import Plan
from echelon.learning.settings import Settings
from echelon.models.actor_critic import Output
from echelon.ranks import Ranks


@dataclass
class Batch:
    """Tensors `[L, G, B]`: L steps, G networks, B evaluations of each.

    Evaluations lie group by group, so a group is a slice and never a mask.
    """

    plan: Plan
    settings: Settings
    action: Tensor
    """`[L, G, B, A]`"""
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
    """`[L, G, B, ...]` each; log sigma `[G, B, A]`, or `[1, 1, A]` with one policy."""
    log_prob: Tensor
    """Under the learning policy, with gradient."""
    leader_log_prob: Tensor | None = None
    """Log-probability of own rows under their network's leader, without gradient; only if the algorithm reads it."""

    def detached(self) -> "Batch":
        """The same numbers without gradient."""
        return replace(self, output=self.output.detached(), log_prob=self.log_prob.detach())

    @property
    def rows(self) -> int:
        """Rows of a network, over which every mean runs."""
        return self.log_prob.shape[0] * self.log_prob.shape[2]

    @property
    def policy_id(self) -> Tensor:
        """`[G, B]` the learning policy."""
        return self.plan.policy_id

    @property
    def ranks(self) -> Ranks:
        """Needed by losses that are not sums over rows: statistics run over the minibatches of all ranks."""
        return self.plan.layout.ranks

    def columns(self, group: str) -> slice:
        """A group's evaluations; none if it has no pairs."""
        return self.plan.columns.get(group, slice(0, 0))

    @property
    def own(self) -> slice:
        return self.columns("own")

    @property
    def learns(self) -> slice:
        """Evaluations that train critic, bounds and entropy: all but those of groups that say otherwise."""
        return self.plan.learns

    @property
    def log_ratio(self) -> Tensor:
        """log π_learner - log π_collector,old `[L, G, B]`."""
        return self.log_prob - self.old_log_prob

    def setting(self, name: str, columns: slice) -> float | Tensor:
        """A number, or one per evaluation in `columns` `[G, n]`, by its learning policy."""
        return self.settings.at(name, self.policy_id[:, columns], self.log_prob.dtype)


def total(x: Tensor) -> Tensor:
    """The sum over a network's rows: `[L, G, n]` to `[G]`."""
    return x.sum((0, 2))
