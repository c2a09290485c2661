"""The gradient steps of one iteration: gather, evaluate, loss, backward, clip, Adam, KL, rate. All on the device."""

from functools import partial

import torch
from torch import Tensor

from echelon.config import TrainConfig
from echelon.learning.batch import Batch
from echelon.learning.layout import LEADER
from echelon.learning.objective import Algorithm, Loss, total_loss
from echelon.learning.optimizer import Adam
from echelon.learning.plans import GROUP_NAMES, Minibatch, Plan
from echelon.learning.rate import adapt, scheduling_kl
from echelon.learning.targets import Targets, normalise_advantages, normalise_values
from echelon.models.actor_critic import ActorCritic
from echelon.models.lookup import lookup
from echelon.models.population import Model
from echelon.rollout.buffer import Rollout


class Update:
    """Owns the optimizer, whose rate the KL rule moves without the host looking."""

    def __init__(self, model: ActorCritic, algorithm: Algorithm, plan: Plan, config: TrainConfig) -> None:
        self.model, self.algorithm, self.plan, self.config = model, algorithm, plan, config
        layout = plan.layout
        coefs = layout.entropy_coefs(config.update.entropy_coef, config.update.entropy_scale)
        self.entropy_coefs = coefs.to(model.log_std.dtype)
        self.optimizer = Adam(model.parameters(), config.update.learning_rate)
        self.reads_leader = algorithm.reads_leader(config) and layout.policies > 1
        kl_counts = {"own": (1, 0, 0), "no_pull": (1, 1, 0), "all": (1, 1, 1)}[config.update.kl_rows]
        self._kl_columns = sum(count * use for count, use in zip(plan.counts, kl_counts, strict=True))

    def run(
        self, rollout: Rollout, targets: Targets, follower: Tensor, generator: torch.Generator
    ) -> dict[str, Tensor]:
        """Train on one rollout; metrics averaged over its steps, as 0-d tensors on the device."""
        update = self.config.update
        data = self.prepare(rollout, targets, follower)
        steps: list[Tensor] = []
        names: list[str] = []
        for _ in range(update.mini_epochs):
            epoch_kl = torch.zeros_like(self.optimizer.rate)
            for minibatch in self.plan.shuffle(follower, generator):
                metrics = self.step(data, minibatch)
                epoch_kl += metrics["kl/rate"] / self.plan.minibatches
                names = list(metrics)
                steps.append(torch.stack(list(metrics.values())))
                if update.rate_schedule == "minibatch":
                    self._adapt(metrics["kl/rate"])
            if update.rate_schedule == "mini_epoch":
                self._adapt(epoch_kl)
        means = torch.stack(steps).mean(0).unbind()
        return dict(zip(names, means, strict=True)) | {"lr": self.optimizer.rate.clone()}

    def prepare(self, rollout: Rollout, targets: Targets, follower: Tensor) -> "Data":
        """Normalise advantages, values and returns. Merges this iteration's values and returns into the statistics."""
        return Data(self.plan, rollout, targets, follower, self.model, self.config)

    def _adapt(self, kl: Tensor) -> None:
        self.optimizer.rate.copy_(adapt(self.optimizer.rate, kl, self.config.update.kl_threshold))

    def step(self, data: "Data", minibatch: Minibatch) -> dict[str, Tensor]:
        """One gradient step. Shapes depend on the plan only."""
        batch = data.batch(minibatch, self.reads_leader)
        loss = self.loss(batch)
        norm = self.optimizer.step(loss.total, self.config.update.grad_norm)
        with torch.no_grad():
            metrics = {name: value.detach() for name, value in loss.metrics.items()} | {"grad_norm": norm}
            return metrics | self._distances(batch, data.slide(minibatch, batch))

    def loss(self, batch: Batch) -> Loss:
        return total_loss(batch, self.algorithm.actor_loss(batch, self.config), self.config, self.entropy_coefs)

    def _distances(self, batch: Batch, kl: Tensor) -> dict[str, Tensor]:
        """How far the minibatch's policies had moved before this step, per group; `kl` is `[L, B]`."""
        outside = ((batch.log_ratio.exp() - batch.centre).abs() > self.config.update.clip * batch.centre).to(kl.dtype)
        metrics = {"kl/rate": kl[:, : self._kl_columns].mean()}
        groups = (batch.own, batch.borrows, batch.pulls)
        for name, columns, count in zip(GROUP_NAMES, groups, batch.counts, strict=True):
            if count:
                metrics[f"kl/{name}"] = kl[:, columns].mean()
                metrics[f"clip_fraction/{name}"] = outside[:, columns].mean()
        return metrics


class Data:
    """One iteration's rollout and targets, indexed by minibatches."""

    def __init__(
        self, plan: Plan, rollout: Rollout, targets: Targets, follower: Tensor, model: Model, config: TrainConfig
    ) -> None:
        self.plan, self.model, self.follower = plan, model, follower
        self.share = partial(plan.share, follower=follower)
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

    def batch(self, minibatch: Minibatch, reads_leader: bool) -> Batch:
        """Gather a minibatch's units once, lay them out for its evaluations, and run the network."""
        plan, share, model = self.plan, self.share, self.model
        rows = plan.rows(minibatch.unit)
        projected = model.project({name: take_rows(x, rows) for name, x in self.obs.items()})
        state, start = take_rows(self.state, rows[:1])[0], take_rows(self.start, rows)
        output = model.evaluate(projected.map(share), plan.policy_id, share(state[None])[0], share(start))
        actions = take_rows(self.action, rows)
        action = share(actions)
        leader_log_prob = None
        if reads_leader:
            with torch.no_grad():
                ids = torch.full_like(minibatch.unit, LEADER)
                leader_log_prob = model.evaluate(projected, ids, state, start).log_prob(actions)
        columns = minibatch.evaluation
        return Batch(
            counts=plan.counts,
            policy_id=plan.policy_id,
            action=action,
            old_log_prob=share(take_rows(self.log_prob, rows)),
            advantage=self.advantage.index_select(1, columns),
            returns=self.returns.index_select(1, columns),
            old_value=self.value.index_select(1, columns),
            centre=self.centre.index_select(1, columns),
            output=output,
            log_prob=output.log_prob(action),
            leader_log_prob=leader_log_prob,
        )

    def slide(self, minibatch: Minibatch, batch: Batch) -> Tensor:
        """KL `[L, B]` of the batch's policies to their reference, which then moves to them if it slides."""
        columns, mean = minibatch.evaluation, batch.output.mean
        log_std = batch.output.log_std.expand_as(mean)
        kl = scheduling_kl(mean, log_std, self.mean.index_select(1, columns), self.log_std.index_select(1, columns))
        if self.sliding:
            self.mean.index_copy_(1, columns, mean)
            self.log_std.index_copy_(1, columns, log_std)
        return kl


def take_rows(x: Tensor, rows: Tensor) -> Tensor:
    """Rows `[L, n]` of a flat table `[T·N, ...]`: `[L, n, ...]`."""
    return x.index_select(0, rows.flatten()).unflatten(0, rows.shape)
