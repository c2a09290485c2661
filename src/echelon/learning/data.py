"""One iteration's rollout and targets, indexed by minibatches."""

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from echelon.config import TrainConfig
from echelon.envs.contract import Groups
from echelon.learning.batch import Batch
from echelon.learning.plans import Minibatch, Plan
from echelon.learning.rate import scheduling_kl
from echelon.learning.targets import Targets, normalise_advantages, normalise_values
from echelon.models.actor_critic import ActorCritic
from echelon.models.lookup import lookup
from echelon.models.population import Model
from echelon.rollout.buffer import Rollout
from echelon.rollout.layout import LEADER


@dataclass
class Gathered:
    """What a minibatch takes out of the tables: of its n units, then of its B evaluations."""

    obs: Groups
    """`[L, n, D]` each, raw."""
    state: Tensor
    """`[n, S]` before the first row."""
    start: Tensor
    """`[L, n]`"""
    action: Tensor
    """`[L, n, A]`"""
    log_prob: Tensor
    """`[L, n]`"""
    advantage: Tensor
    """`[L, B]`, and so the rest."""
    returns: Tensor
    value: Tensor
    centre: Tensor


class Data:
    """See the module."""

    def __init__(
        self, plan: Plan, rollout: Rollout, targets: Targets, follower: Tensor, model: Model, config: TrainConfig
    ) -> None:
        self.plan, self.model, self.follower = plan, model, follower
        self.sharing = plan.sharing(follower)
        flat = partial(torch.flatten, start_dim=0, end_dim=1)
        self.obs = {name: flat(x[:-1]) for name, x in rollout.obs.items()}
        self.state, self.start = flat(rollout.state[:-1]), flat(rollout.start[:-1])
        self.action, self.log_prob = flat(rollout.action), flat(rollout.log_prob)
        self.advantage = normalise_advantages(plan, targets.advantage, config.ensemble.advantage_scope)
        self.centre = targets.centre
        self.value, self.returns = self._normalise_values(targets)
        self.sliding = config.update.kl_reference == "sliding"
        self.mean, self.log_std = self._behaviour(rollout)

    def _normalise_values(self, targets: Targets) -> tuple[Tensor, Tensor]:
        assert isinstance(self.model, ActorCritic)
        return normalise_values(self.model.value_norm, targets.value, targets.returns)

    def _behaviour(self, rollout: Rollout) -> tuple[Tensor, Tensor]:
        """Mean and log sigma `[L, size, A]` of the policy that collected each evaluation's rows."""
        plan, layout = self.plan, self.plan.layout
        log_std = lookup(rollout.log_std, layout.policy_id).expand(rollout.horizon, layout.num_envs, -1)
        tables = []
        for x in (rollout.mean, log_std):
            borrowed = layout.follower_block(x, 1, self.follower) if plan.borrowed else None
            pulled = layout.leader_block(x, 1).expand(layout.followers, -1, -1, -1) if plan.pulled else None
            tables.append(plan.in_order(x, borrowed, pulled))
        return tables[0], tables[1]

    def gather(self, minibatch: Minibatch) -> Gathered:
        """A minibatch's rows, each once, and what belongs to its evaluations."""
        rows, columns = self.plan.rows(minibatch.unit), minibatch.evaluation
        return Gathered(
            obs={name: take_rows(x, rows) for name, x in self.obs.items()},
            state=take_rows(self.state, rows[:1])[0],
            start=take_rows(self.start, rows),
            action=take_rows(self.action, rows),
            log_prob=take_rows(self.log_prob, rows),
            advantage=self.advantage.index_select(1, columns),
            returns=self.returns.index_select(1, columns),
            value=self.value.index_select(1, columns),
            centre=self.centre.index_select(1, columns),
        )

    def evaluate(self, gathered: Gathered, reads_leader: bool) -> Batch:
        """Lay a minibatch's rows out for its evaluations, and run the network."""
        plan, share, model = self.plan, self.sharing.share, self.model
        projected, state, start = model.project(gathered.obs), gathered.state, gathered.start
        output = model.evaluate(projected.shared(self.sharing), plan.policy_id, share(state[None])[0], share(start))
        action = share(gathered.action)
        leader_log_prob = None
        if reads_leader:
            with torch.no_grad():
                ids = torch.full(state.shape[:1], LEADER, device=state.device)
                leader_log_prob = model.evaluate(projected, ids, state, start).log_prob(gathered.action)
        return Batch(
            counts=plan.counts,
            policy_id=plan.policy_id,
            action=action,
            old_log_prob=share(gathered.log_prob),
            advantage=gathered.advantage,
            returns=gathered.returns,
            old_value=gathered.value,
            centre=gathered.centre,
            output=output,
            log_prob=output.log_prob(action),
            leader_log_prob=leader_log_prob,
        )

    def batch(self, minibatch: Minibatch, reads_leader: bool) -> Batch:
        """What the network says about a minibatch."""
        return self.evaluate(self.gather(minibatch), reads_leader)

    def kl(self, minibatch: Minibatch, batch: Batch) -> Tensor:
        """KL `[L, B]` of the batch's policies to their reference."""
        columns, mean = minibatch.evaluation, batch.output.mean
        log_std = batch.output.log_std.expand_as(mean)
        return scheduling_kl(mean, log_std, self.mean.index_select(1, columns), self.log_std.index_select(1, columns))

    def slide(self, minibatch: Minibatch, batch: Batch) -> None:
        """Move the reference to the batch's policies, if it slides."""
        if self.sliding:
            columns, mean = minibatch.evaluation, batch.output.mean
            self.mean.index_copy_(1, columns, mean)
            self.log_std.index_copy_(1, columns, batch.output.log_std.expand_as(mean))


def take_rows(x: Tensor, rows: Tensor) -> Tensor:
    """Rows `[L, n]` of a flat table `[T·N, ...]`: `[L, n, ...]`."""
    return x.index_select(0, rows.flatten()).unflatten(0, rows.shape)
