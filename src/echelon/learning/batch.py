"""Minibatches: the rollout and targets they index, the rows they gather, and the networks' output for them."""

from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from echelon.envs.contract import TARGET, Groups
from echelon.learning.optimizer import scheduling_kl
from echelon.learning.plans import Minibatch, Plan
from echelon.learning.settings import Settings
from echelon.learning.targets import Targets
from echelon.models.actor_critic import ActorCritic, Output
from echelon.models.linear import lookup
from echelon.ranks import Ranks
from echelon.rollout.buffer import Rollout
from echelon.rollout.layout import LEADER


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
    target: Tensor | None = None
    """`[L, G, B, A]`: what a teacher would do; only if there is one."""

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


@dataclass
class Gathered:
    """A minibatch's rows of the tables: of its n units, then of its B evaluations."""

    obs: Groups
    """`[L, G·n, D]` each, raw."""
    state: Tensor
    """`[G·n, S]` before the first row."""
    start: Tensor
    """`[L, G·n]`"""
    action: Tensor
    """`[L, G·n, A]`"""
    log_prob: Tensor
    """`[L, G·n]`"""
    advantage: Tensor
    """`[L, G, B]`, as are the following."""
    returns: Tensor
    value: Tensor
    centre: Tensor


class Data:
    """A rollout and the targets made of it, in the critic's units and with normalised advantages."""

    def __init__(
        self, plan: Plan, rollout: Rollout, targets: Targets, drawn: Tensor, model: ActorCritic, settings: Settings
    ) -> None:
        self.plan, self.model, self.settings = plan, model, settings
        self.sharing = plan.sharing(drawn)
        flat = partial(torch.flatten, start_dim=0, end_dim=1)
        self.obs = {name: flat(x[:-1]) for name, x in rollout.obs.items()}
        self.state, self.start = flat(rollout.state[:-1]), flat(rollout.start[:-1])
        self.action, self.log_prob = flat(rollout.action), flat(rollout.log_prob)
        self.advantage, self.centre = targets.advantage, targets.centre
        self.value, self.returns = targets.value, targets.returns
        self.mean, self.log_std = self._behaviour(rollout, drawn)

    def _behaviour(self, rollout: Rollout, drawn: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log sigma `[L, G, S, A]` of the policy that collected each evaluation's rows."""
        plan, layout = self.plan, self.plan.layout
        log_std = lookup(rollout.log_std, layout.policy_id).expand(rollout.horizon, layout.num_envs, -1)

        def table(x: Tensor) -> Tensor:
            return plan.table(x, [plan.source(x, block.source, drawn) for block in plan.pairs])

        return table(rollout.mean), table(log_std)

    def gather(self, minibatch: Minibatch) -> Gathered:
        """Gather a minibatch's rows, each once, and the targets of its evaluations."""
        rows = self.plan.rows(minibatch.unit)
        return Gathered(
            obs={name: take_rows(x, rows) for name, x in self.obs.items()},
            state=take_rows(self.state, rows[:1])[0],
            start=take_rows(self.start, rows),
            action=take_rows(self.action, rows),
            log_prob=take_rows(self.log_prob, rows),
            advantage=take_columns(self.advantage, minibatch),
            returns=take_columns(self.returns, minibatch),
            value=take_columns(self.value, minibatch),
            centre=take_columns(self.centre, minibatch),
        )

    def evaluate(self, gathered: Gathered, reads_leader: bool) -> Batch:
        """Lay a minibatch's rows out for its evaluations, and run the networks."""
        plan, share, model = self.plan, self.sharing.share, self.model
        projected, state, start = model.project(gathered.obs), gathered.state, gathered.start
        ids = plan.policy_id.flatten()
        shared = replace(projected, sharing=self.sharing)
        output = model.evaluate(shared, ids, share(state[None])[0], share(start))
        leader_log_prob = None
        if reads_leader:
            with torch.no_grad():
                leaders = plan.layout.ids(LEADER, len(state) // plan.layout.networks)
                leading = model.evaluate(projected, leaders, state, start)
                leader_log_prob = self._by_network(leading.log_prob(gathered.action))
        output = Output(
            mean=self._by_network(output.mean),
            log_std=output.log_std.unflatten(0, (plan.layout.networks, -1)),
            value=self._by_network(output.value),
            state=output.state,
        )
        action, target = self._by_network(share(gathered.action)), gathered.obs.get(TARGET)
        return Batch(
            plan=plan,
            settings=self.settings,
            action=action,
            old_log_prob=self._by_network(share(gathered.log_prob)),
            advantage=gathered.advantage,
            returns=gathered.returns,
            old_value=gathered.value,
            centre=gathered.centre,
            output=output,
            log_prob=output.log_prob(action),
            leader_log_prob=leader_log_prob,
            target=None if target is None else self._by_network(share(target)),
        )

    def _by_network(self, x: Tensor) -> Tensor:
        """`[L, G·B, ...]` to `[L, G, B, ...]`."""
        return x.unflatten(1, (self.plan.layout.networks, -1))

    def kl(self, minibatch: Minibatch, batch: Batch) -> Tensor:
        """KL `[L, G, B]` of the batch's policies to their reference."""
        mean, log_std = batch.output.mean, batch.output.log_std.expand_as(batch.output.mean)
        return scheduling_kl(mean, log_std, take_columns(self.mean, minibatch), take_columns(self.log_std, minibatch))

    def slide(self, minibatch: Minibatch, batch: Batch) -> None:
        """Move the reference of the KL to the batch's policies."""
        mean = batch.output.mean
        for table, now in ((self.mean, mean), (self.log_std, batch.output.log_std.expand_as(mean))):
            table.flatten(1, 2).index_copy_(1, minibatch.evaluation, now.flatten(1, 2))


def take_rows(x: Tensor, rows: Tensor) -> Tensor:
    """Rows `[L, n]` of a flat table `[T·N, ...]`: `[L, n, ...]`."""
    return x.index_select(0, rows.flatten()).unflatten(0, rows.shape)


def take_columns(x: Tensor, minibatch: Minibatch) -> Tensor:
    """A minibatch's evaluations out of a table `[L, G, S, ...]`: `[L, G, B, ...]`."""
    return x.flatten(1, 2).index_select(1, minibatch.evaluation).unflatten(1, (x.shape[1], -1))
