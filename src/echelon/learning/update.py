"""The gradient steps of one iteration: gather, evaluate, loss, backward, clip, Adam, KL, rate. All on the device."""

import torch
from torch import Tensor

from echelon.config import TrainConfig
from echelon.device.fusion import fused
from echelon.learning.batch import Batch
from echelon.learning.data import Data, Gathered
from echelon.learning.objective import Algorithm, Loss, total_loss
from echelon.learning.optimizer import Adam
from echelon.learning.plans import GROUP_NAMES, Minibatch, Plan
from echelon.learning.rate import adapt
from echelon.learning.targets import Targets
from echelon.models.actor_critic import ActorCritic
from echelon.rollout.buffer import Rollout


class Update:
    """Owns the optimizer, whose rate the KL rule moves without the host looking."""

    def __init__(self, model: ActorCritic, algorithm: Algorithm, plan: Plan, config: TrainConfig) -> None:
        self.model, self.algorithm, self.plan, self.config = model, algorithm, plan, config
        layout = plan.layout
        coefs = layout.entropy_coefs(config.update.entropy_coef, config.update.entropy_scale)
        self.entropy_coefs = coefs.to(model.log_std.dtype)
        self.optimizer = Adam(model.parameters(), config.update.learning_rate, fuse=config.fuse)
        self.reads_leader = algorithm.reads_leader(config) and layout.policies > 1
        kl_counts = {"own": (1, 0, 0), "no_pull": (1, 1, 0), "all": (1, 1, 1)}[config.update.kl_rows]
        self._kl_columns = sum(count * use for count, use in zip(plan.counts, kl_counts, strict=True))
        device = layout.policy_id.device
        self.gather = fused(Data.gather, device, enabled=config.fuse)
        self.grade = fused(self._grade, device, enabled=config.fuse)
        self._measure = fused(self._distances, device, enabled=config.fuse)

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

    def prepare(self, rollout: Rollout, targets: Targets, follower: Tensor) -> Data:
        """Normalise advantages, values and returns. Merges this iteration's values and returns into the statistics."""
        return Data(self.plan, rollout, targets, follower, self.model, self.config)

    def _adapt(self, kl: Tensor) -> None:
        self.optimizer.rate.copy_(adapt(self.optimizer.rate, kl, self.config.update.kl_threshold))

    def step(self, data: Data, minibatch: Minibatch) -> dict[str, Tensor]:
        """One gradient step. Shapes depend on the plan only."""
        batch, loss = self.grade(data, self.gather(data, minibatch))
        norm = self.optimizer.step(loss.total, self.config.update.grad_norm)
        with torch.no_grad():
            metrics = loss.metrics | {"grad_norm": norm}
            metrics |= self._measure(data, minibatch, batch)
            data.slide(minibatch, batch)
        return metrics

    def _grade(self, data: Data, gathered: Gathered) -> tuple[Batch, Loss]:
        """What the network says about a minibatch, and what it is told.

        Only the total has a gradient: of anything else that had one, a compiled backward pass would add up zeros.
        """
        batch = data.evaluate(gathered, self.reads_leader)
        loss = self.loss(batch)
        return batch.detached(), Loss(loss.total, {name: value.detach() for name, value in loss.metrics.items()})

    def loss(self, batch: Batch) -> Loss:
        return total_loss(batch, self.algorithm.actor_loss(batch, self.config), self.config, self.entropy_coefs)

    def _distances(self, data: Data, minibatch: Minibatch, batch: Batch) -> dict[str, Tensor]:
        """How far the minibatch's policies had moved before this step, per group."""
        kl = data.kl(minibatch, batch)
        outside = ((batch.log_ratio.exp() - batch.centre).abs() > self.config.update.clip * batch.centre).to(kl.dtype)
        metrics = {"kl/rate": kl[:, : self._kl_columns].mean()}
        groups = (batch.own, batch.borrows, batch.pulls)
        for name, columns, count in zip(GROUP_NAMES, groups, batch.counts, strict=True):
            if count:
                metrics[f"kl/{name}"] = kl[:, columns].mean()
                metrics[f"clip_fraction/{name}"] = outside[:, columns].mean()
        return metrics
