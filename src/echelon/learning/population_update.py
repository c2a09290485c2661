"""The gradient steps of a population: PPO's for every member at once, each with numbers of its own."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap

from echelon.config import TrainConfig
from echelon.learning.advantages import gae
from echelon.learning.batch import Batch
from echelon.learning.data import Data
from echelon.learning.hyperparameters import Hyperparameters
from echelon.learning.objective import Algorithm, Loss, total_loss
from echelon.learning.plans import Minibatch, Plan
from echelon.learning.population_adam import PopulationAdam
from echelon.learning.rate import adapt
from echelon.learning.targets import Targets, normalise_values
from echelon.models.actor_critic import Output
from echelon.models.population import Population
from echelon.rollout.buffer import Rollout

IN_LOSS = ("clip", "critic_coef", "bounds_coef", "entropy_coef")
"""Hyperparameters that the loss reads."""


class PopulationUpdate:
    """As `Update`, for networks that share nothing: what is a number there is a vector over members here.

    One backward pass of the members' summed losses gives each its own gradient. Members with fewer mini-epochs than
    others sit out the last passes: everything is computed, and nothing of theirs moves.
    """

    def __init__(
        self,
        model: Population,
        algorithm: Algorithm,
        plan: Plan,
        config: TrainConfig,
        reward_scales: Mapping[str, Tensor],
    ) -> None:
        self.model, self.algorithm, self.plan = model, algorithm, plan
        self.config = replace(config, ensemble=replace(config.ensemble, advantage_scope="policy"))
        self.members = model.policies
        self.optimizer = PopulationAdam(model, config.update.learning_rate)
        self.hyperparameters = Hyperparameters(config.update, self.optimizer.rate, reward_scales, plan.layout)
        self.passes = config.update.mini_epochs
        """Passes over the data: the most that any member takes. A part of the recorded graph."""

    @torch.no_grad()
    def targets(self, rollout: Rollout) -> Targets:
        """As `compute_targets` for own rows, with each member's discount."""
        discount = self.hyperparameters["discount"]
        if self.members == 1:
            discount = discount[0]  # a float64 number, as in PPO
        else:
            discount = discount.to(rollout.reward.dtype).index_select(0, self.plan.layout.policy_id)
        value = rollout.value[:-1]
        advantage = gae(rollout.trajectory, rollout.value, discount, self.config.update.gae_lambda)
        tables = [self.plan.by_unit(x) for x in (advantage, advantage + value, value, torch.ones_like(value))]
        return Targets(*tables)

    def run(
        self, rollout: Rollout, targets: Targets, follower: Tensor, generator: torch.Generator
    ) -> dict[str, Tensor]:
        """Train on one rollout; metrics averaged over the steps taken, of all members and of each."""
        schedule = self.config.update.rate_schedule
        data = PopulationData(self.plan, rollout, targets, follower, self.model, self.config)
        total, taken = torch.zeros((), device=follower.device), torch.zeros_like(self.hyperparameters["mini_epochs"])
        names: list[str] = []
        for number in range(self.passes):
            active = self.hyperparameters["mini_epochs"] > number
            epoch_kl = torch.zeros_like(self.optimizer.rate)
            for minibatch in self.plan.shuffle(follower, generator):
                metrics = self.step(data, minibatch, active)
                epoch_kl += metrics["kl/rate"] / self.plan.minibatches
                names = list(metrics)
                total = total + torch.where(active, torch.stack(list(metrics.values())), 0.0)
                taken = taken + active
                if schedule == "minibatch":
                    self._adapt(metrics["kl/rate"], active)
            if schedule == "mini_epoch":
                self._adapt(epoch_kl, active)
        return self._metrics(dict(zip(names, (total / taken).unbind(), strict=True)))

    def _metrics(self, means: dict[str, Tensor]) -> dict[str, Tensor]:
        rate = self.optimizer.rate.clone()
        each = {name: means[name] for name in ("kl/own", "grad_norm")} if self.members > 1 else {}
        per_policy = {f"{name}/policy_{i}": x[i] for name, x in each.items() for i in range(self.members)}
        return {name: x.mean() for name, x in means.items()} | {"lr": rate.mean()} | per_policy

    def _adapt(self, kl: Tensor, active: Tensor) -> None:
        rate = self.optimizer.rate
        moved = adapt(rate, kl, self.hyperparameters["kl_threshold"].to(rate.dtype))
        rate.copy_(torch.where(active, moved, rate))

    def step(self, data: "PopulationData", minibatch: Minibatch, active: Tensor) -> dict[str, Tensor]:
        """One gradient step of the `active` `[M]` members; metrics `[M]`. Shapes depend on the plan only."""
        batch = data.batch(minibatch, reads_leader=False)
        loss = self.loss(batch)
        norm = self.optimizer.step(loss.total.sum(), self.hyperparameters["grad_norm"], active)
        with torch.no_grad():
            clip = self.hyperparameters["clip"].to(norm.dtype)[:, None]
            outside = (self._blocks(batch.log_ratio).exp() - 1.0).abs() > clip
            kl = self._blocks(data.kl(minibatch, batch)).mean((0, 2))
            data.slide(minibatch, batch)
            metrics = {name: value.detach() for name, value in loss.metrics.items()} | {"grad_norm": norm}
            return metrics | {"kl/rate": kl, "kl/own": kl, "clip_fraction/own": outside.to(kl.dtype).mean((0, 2))}

    def loss(self, batch: Batch) -> Loss:
        """Total and metrics `[M]`: PPO's loss, a member at a time."""
        if self.members == 1:
            alone = self._member_loss(batch, {name: self.hyperparameters[name][0] for name in IN_LOSS})
            return Loss(alone.total[None], {name: x[None] for name, x in alone.metrics.items()})
        dtype = batch.log_prob.dtype  # under vmap a float64 number would make float64 of what it touches
        numbers = {name: self.hyperparameters[name].to(dtype) for name in IN_LOSS}
        output = batch.output
        names = ("action", "old_log_prob", "advantage", "returns", "old_value", "centre", "log_prob")
        columns = {name: self._blocks(getattr(batch, name)) for name in names}
        outputs = {"mean": self._blocks(output.mean), "value": self._blocks(output.value)}
        rows = {name: getattr(output, name).unflatten(0, (self.members, -1)) for name in ("log_std", "state")}

        def member(columns: Any, outputs: Any, rows: Any, numbers: Any) -> tuple[Tensor, dict[str, Tensor]]:
            count = columns["log_prob"].shape[1]
            ids = torch.zeros(count, dtype=torch.int64, device=output.mean.device)
            part = Batch(counts=(count, 0, 0), policy_id=ids, output=Output(**outputs, **rows), **columns)
            loss = self._member_loss(part, numbers)
            return loss.total, loss.metrics

        return Loss(*vmap(member, in_dims=(1, 1, 0, 0))(columns, outputs, rows, numbers))

    def _member_loss(self, batch: Batch, numbers: Mapping[str, Tensor]) -> Loss:
        """The loss as PPO computes it, its settings replaced by 0-d tensors."""
        changes: dict[str, Any] = {name: numbers[name] for name in IN_LOSS if name != "entropy_coef"}
        config = replace(self.config, update=replace(self.config.update, **changes))
        entropy = numbers["entropy_coef"].to(batch.log_prob.dtype)[None]
        return total_loss(batch, self.algorithm.actor_loss(batch, config), config, entropy)

    def _blocks(self, x: Tensor) -> Tensor:
        """A minibatch's columns `[L, B, ...]` by member: `[L, M, B/M, ...]`."""
        return x.unflatten(1, (self.members, -1))

    def copy(self, donor: int, member: int) -> None:
        """The member goes on as a copy of the donor: weights, statistics and the optimizer's moments."""
        self.model.copy(donor, member)
        self.optimizer.copy(donor, member)


class PopulationData(Data):
    """Values and returns in the units of each member's critic."""

    def _normalise_values(self, targets: Targets) -> tuple[Tensor, Tensor]:
        assert isinstance(self.model, Population)
        plan = self.plan
        blocks = (plan.chunks, self.model.policies, plan.layout.follower_envs)
        value, returns = (x.unflatten(1, blocks).unbind(2) for x in (targets.value, targets.returns))
        pairs = [
            normalise_values(self.model.member(i).value_norm, value[i], returns[i]) for i in range(self.model.policies)
        ]
        stacked = (torch.stack(parts, dim=2).flatten(1, 3) for parts in zip(*pairs, strict=True))
        return next(stacked), next(stacked)
