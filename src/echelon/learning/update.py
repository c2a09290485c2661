"""The gradient steps of one iteration: gather, evaluate, loss, backward, clip, Adam, KL, rate. All on the device."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from echelon.config import TrainConfig
from echelon.device.capture import Source
from echelon.device.fusion import fused
from echelon.envs.contract import MAX_STATISTIC
from echelon.learning.batch import Batch, Data, Gathered
from echelon.learning.noise import Noise
from echelon.learning.objective import ActorLoss, Loss, total_loss
from echelon.learning.optimizer import Adam, adapt
from echelon.learning.plans import Minibatch, Plan
from echelon.learning.settings import Settings
from echelon.learning.targets import Targets, merge_values, normalise_advantages
from echelon.models.actor_critic import ActorCritic
from echelon.rollout.buffer import Rollout


class Update:
    """Owns the optimizer, whose rates the KL rule moves on the device.

    Networks with fewer mini-epochs than others skip the last passes: everything is computed, but they do not change.
    """

    def __init__(
        self,
        model: ActorCritic,
        actor_loss: Callable[[Batch, TrainConfig], ActorLoss],
        plan: Plan,
        settings: Settings,
        config: TrainConfig,
        *,
        reads_leader: bool = False,
    ) -> None:
        self.model, self.actor_loss, self.plan, self.settings, self.config = model, actor_loss, plan, settings, config
        self.ranks = plan.layout.ranks
        self.optimizer = Adam(model.parameters(), config.update.learning_rate, fuse=config.fuse, ranks=self.ranks)
        self.noise = Noise(config.noise, config.model.initial_sigma, model.log_sigma.data)
        self.reads_leader = reads_leader and plan.layout.each > 1
        if isinstance(rates := settings.of_networks("learning_rate"), Tensor):
            self.optimizer.rate.copy_(rates)
        passes = settings.of_networks("mini_epochs")
        self.passes = int(passes.max()) if isinstance(passes, Tensor) else int(passes)
        """Passes over the data: the most that any network takes. A part of the recorded graph."""
        kl_ends = {"own": plan.columns["own"].stop, "no_pull": plan.learns.stop, "all": plan.blocks.evaluations}
        self._kl_columns = slice(0, kl_ends[config.update.kl_rows])
        device = plan.layout.device
        self.gather = fused(Data.gather, device, enabled=config.fuse)
        self.evaluate = fused(self._evaluate, device, enabled=config.fuse)
        self._measure = fused(self._distances, device, enabled=config.fuse)

    def run(self, rollout: Rollout, targets: Targets, drawn: Tensor, generator: Source) -> dict[str, Tensor]:
        """Train on one rollout; metrics `[G]`, averaged over the steps that each network took, on the device."""
        schedule = self.config.update.rate_schedule
        value, returns, far = merge_values(self.model.value_norm, targets.value, targets.returns, self.ranks)
        data = self.data(rollout, replace(targets, value=value, returns=returns), drawn)
        mini_epochs = self.settings.of_networks("mini_epochs")
        steps: list[Tensor] = []
        taken: list[Tensor] = []
        names: list[str] = []
        for number in range(self.passes):
            active = mini_epochs > number if isinstance(mini_epochs, Tensor) else None
            epoch_kl = torch.zeros_like(self.optimizer.rate)
            for minibatch in self.plan.shuffle(drawn, generator):
                metrics = self.step(data, minibatch, active)
                epoch_kl += metrics["kl/rate"] / self.plan.minibatches
                names = list(metrics)
                steps.append(torch.stack(list(metrics.values())))
                if active is not None:
                    taken.append(active)
                if schedule == "minibatch":
                    self._adapt(metrics["kl/rate"], active)
            if schedule == "mini_epoch":
                self._adapt(epoch_kl, active)
        means = self._means(names, torch.stack(steps), torch.stack(taken) if taken else None)
        return means | {"clipped/returns": far.to(returns.dtype) * self.ranks.size}

    def data(self, rollout: Rollout, targets: Targets, drawn: Tensor) -> Data:
        """The tables that minibatches index. Values and returns are in the critic's units already."""
        advantage = normalise_advantages(self.plan, targets.advantage, self.config.ensemble.advantage_scope)
        return Data(self.plan, rollout, replace(targets, advantage=advantage), drawn, self.model, self.settings)

    def _means(self, names: list[str], steps: Tensor, taken: Tensor | None) -> dict[str, Tensor]:
        """Metrics `[steps, names, G]` averaged over the steps each network took: `[G]` each."""
        means = steps.mean(0) if taken is None else torch.where(taken[:, None], steps, 0.0).sum(0) / taken.sum(0)
        return dict(zip(names, means.unbind(), strict=True)) | {"lr": self.optimizer.rate.clone()}

    def summary(self, found: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """0-d metrics of the run: the mean over its networks and, if there are several, a few per network."""
        each = {name: found[name] for name in ("kl/own", "grad_norm")} if self.plan.layout.networks > 1 else {}
        by_network = {f"{name}/policy_{i}": x for name, values in each.items() for i, x in enumerate(values)}
        return {name: x.mean() for name, x in found.items()} | by_network

    def _adapt(self, kl: Tensor, active: Tensor | None) -> None:
        rate, threshold = self.optimizer.rate, self.settings.of_networks("kl_threshold")
        moved = adapt(rate, kl, threshold.to(rate.dtype) if isinstance(threshold, Tensor) else threshold)
        rate.copy_(moved if active is None else torch.where(active, moved, rate))

    def step(self, data: Data, minibatch: Minibatch, active: Tensor | None = None) -> dict[str, Tensor]:
        """One gradient step of the `active` `[G]` networks; metrics `[G]`. Shapes depend on the plan only."""
        batch, loss = self.evaluate(data, self.gather(data, minibatch))
        self.optimizer.backward(loss.total.sum())
        with torch.no_grad():
            distances = self._measure(data, minibatch, batch)
            # Ranks exchange gradients and the KL of the rate rule at once.
            kl = self.optimizer.exchange(distances["kl/rate"])
            norm = self.optimizer.descend(self.settings.of_networks("grad_norm"), active)
            self.noise.hold(self.model.log_sigma.data)
            self.model.bound_sigma()
            metrics = loss.metrics | {"grad_norm": norm} | distances | {"kl/rate": kl}
            if self.config.update.kl_reference == "sliding":
                data.slide(minibatch, batch)
        return metrics

    def _evaluate(self, data: Data, gathered: Gathered) -> tuple[Batch, Loss]:
        """Forward pass and loss of a minibatch.

        Only the total has a gradient: for any other output, a compiled backward pass would add up zeros.
        """
        batch = data.evaluate(gathered, self.reads_leader)
        loss = self.loss(batch)
        return batch.detached(), Loss(loss.total, {name: value.detach() for name, value in loss.metrics.items()})

    def loss(self, batch: Batch) -> Loss:
        return total_loss(batch, self.actor_loss(batch, self.config), self.config)

    def _distances(self, data: Data, minibatch: Minibatch, batch: Batch) -> dict[str, Tensor]:
        """How far the minibatch's policies had moved before this step, per group: `[G]` each."""
        kl = data.kl(minibatch, batch)
        everything = slice(0, kl.shape[2])
        clip = batch.setting("clip", everything)
        outside = ((batch.log_ratio.exp() - batch.centre).abs() > clip * batch.centre).to(kl.dtype)
        metrics = {"kl/rate": kl[..., self._kl_columns].mean((0, 2))}
        for name, columns in self.plan.columns.items():
            metrics[f"kl/{name}"] = kl[..., columns].mean((0, 2))
            metrics[f"clip_fraction/{name}"] = outside[..., columns].mean((0, 2))
        return metrics

    def finite(self) -> Tensor:
        """`[G]`: whether all of a network's weights, statistics and moments are finite, and none is absurdly large."""
        optimizer = self.optimizer
        parts = (*self.model.parameters(), *self.model.buffers(), optimizer.mean, optimizer.square)
        return torch.stack([(x.reshape(optimizer.networks, -1).abs() <= MAX_STATISTIC).all(1) for x in parts]).all(0)

    def copy(self, donor: int, network: int) -> None:
        """Overwrite a network with a copy of the donor: weights, statistics and the optimizer's moments."""
        self.model.copy(donor, network)
        self.optimizer.copy(donor, network)
