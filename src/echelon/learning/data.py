"""One iteration's rollout and targets, indexed by minibatches."""

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from echelon.envs.contract import Groups
from echelon.learning.batch import Batch
from echelon.learning.plans import Minibatch, Plan
from echelon.learning.rate import scheduling_kl
from echelon.learning.settings import Settings
from echelon.learning.targets import Targets
from echelon.models.actor_critic import ActorCritic, Output
from echelon.models.lookup import lookup
from echelon.rollout.buffer import Rollout
from echelon.rollout.layout import LEADER


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
        output = model.evaluate(projected.shared(self.sharing), ids, share(state[None])[0], share(start))
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
        action = self._by_network(share(gathered.action))
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
        )

    def _by_network(self, x: Tensor) -> Tensor:
        """`[L, G·B, ...]` to `[L, G, B, ...]`."""
        return x.unflatten(1, (self.plan.layout.networks, -1))

    def batch(self, minibatch: Minibatch, reads_leader: bool) -> Batch:
        """A minibatch and the networks' output for it."""
        return self.evaluate(self.gather(minibatch), reads_leader)

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
