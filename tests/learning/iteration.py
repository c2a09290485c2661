"""One iteration taken apart: a real rollout of a small environment, its targets, and what the update makes of them."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

import torch
from rollout.stub_env import DriftEnv
from torch import Tensor

from echelon.algorithms import AdversaryConfig, Preset
from echelon.config import DiagnosticsConfig, EnsembleConfig, ModelConfig, TrainConfig, UpdateConfig
from echelon.learning.batch import Batch, Data
from echelon.learning.plans import Minibatch, Plan
from echelon.learning.targets import Targets, compute_targets, merge_values
from echelon.learning.update import Update
from echelon.models.sharing import DRAWN
from echelon.rollout.buffer import Rollout
from echelon.training.trainer import Trainer

OWN, LEADER_BORROWS, FOLLOWER_PULL = "own", "leader_borrows", "follower_pull"


def small_config(
    algo: str,
    policies: int | None = None,
    lstm: int = 0,
    *,
    num_envs: int = 18,
    minibatches: int = 2,
    ensemble: EnsembleConfig | None = None,
    adversary: float = 0.0,
    **update: object,
) -> Preset:
    """Tiny networks; 12 steps, in sequences of 6 for an LSTM, so that most sequences start inside an episode."""
    settings = UpdateConfig(horizon=12, sequence=6, mini_epochs=2, minibatches=minibatches, learning_rate=3e-3)
    return Preset(
        algo=algo,
        policies=policies,
        num_envs=num_envs,
        model=ModelConfig(hidden=(16, 8), lstm=lstm, phi_dim=4),
        update=replace(settings, **update),
        ensemble=ensemble or EnsembleConfig(),
        adversary=AdversaryConfig(coef=adversary, hidden=(16,)),
        diagnostics=DiagnosticsConfig(every=0),
    )


def small_trainer(config: TrainConfig, **env: object) -> Trainer:
    trainer = Trainer(DriftEnv(config.num_envs, seed=config.seed, **env), config)
    # Policies that differ by more than their vectors.
    generator = torch.Generator().manual_seed(1)
    trainer.model.log_std.data.normal_(-0.3, 0.2, generator=generator)
    return trainer


@dataclass
class Parts:
    """What an iteration works on before its first step."""

    trainer: Trainer
    rollout: Rollout
    follower: Tensor
    targets: Targets
    data: Data

    def minibatches(self) -> Iterator[Minibatch]:
        return self.trainer.plan.shuffle(self.follower, torch.Generator().manual_seed(0))

    def batches(self) -> Iterator[Batch]:
        for minibatch in self.minibatches():
            yield self.data.evaluate(self.data.gather(minibatch), self.trainer.update.reads_leader)

    def batch(self) -> Batch:
        """All evaluations at once; the trainer must have one minibatch."""
        (batch,) = self.batches()
        return batch

    def gradients(self) -> dict[str, Tensor]:
        """Gradients of the whole loss, by parameter name, of the only network."""
        self.trainer.model.zero_grad()
        self.trainer.update.loss(self.batch()).total.sum().backward()
        named = self.trainer.model.named_parameters()
        return {name: p.grad[0].clone() for name, p in named if p.grad is not None}


def take_apart(trainer: Trainer, follower: int = 1, rollouts: int = 2) -> Parts:
    """The parts of the next iteration. The last rollout is taken: it starts inside episodes."""
    collector, model = trainer.collector, trainer.model
    collector.reset()
    model.merge_observations({name: x[-1] for name, x in collector.rollout.obs.items()})
    for _ in range(rollouts):
        rollout = collector.collect()
    drawn = torch.tensor([follower])
    config = trainer.config
    targets = compute_targets(trainer.plan, rollout, model, drawn, None, trainer.settings, config.ensemble)
    return Parts(trainer, rollout, drawn, targets, prepare(trainer.update, rollout, targets, drawn))


def prepare(update: Update, rollout: Rollout, targets: Targets, drawn: Tensor) -> Data:
    """As an update begins: values and returns are merged into the statistics."""
    value, returns, _ = merge_values(update.model.value_norm, targets.value, targets.returns)
    return update.data(rollout, replace(targets, value=value, returns=returns), drawn)


def listing(plan: Plan, drawn: Tensor) -> tuple[Tensor, Tensor, list[str]]:
    """A plan in full: unit, policy id and group of every evaluation, network after network, in order: `[G·S]`."""
    layout, collector = plan.layout, plan.layout.policy_id.tolist()
    found: list[tuple[int, int, str]] = []

    def add(policy: int | None, envs: slice, group: str) -> None:
        for chunk, env in product(range(plan.chunks), range(envs.start, envs.stop)):
            found.append((chunk * layout.num_envs + env, collector[env] if policy is None else policy, group))

    for network in range(layout.networks):
        first = network * layout.each
        add(None, slice(network * layout.envs, (network + 1) * layout.envs), OWN)
        for group in plan.groups[1:]:
            for learner, source in group.pairs(layout.each):
                other = int(drawn[network]) if source == DRAWN else first + source
                add(first + learner, layout.environments(other), group.name)
    units, policies, groups = zip(*found, strict=True)
    return torch.tensor(units), torch.tensor(policies), list(groups)


def where(groups: list[str], *names: str) -> Tensor:
    """A mask over evaluations: those of some groups."""
    return torch.tensor([group in names for group in groups])
