"""What an algorithm is made of. Each is a file of this folder, or registered from outside."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from echelon.algorithms import TeacherConfig
from echelon.config import TrainConfig
from echelon.device.capture import Source
from echelon.envs.contract import Env, Size, Stateful
from echelon.learning.batch import Batch
from echelon.learning.objective import ActorLoss
from echelon.learning.plans import Group
from echelon.learning.settings import Settings, entropy_ladder
from echelon.learning.update import Update
from echelon.models.actor_critic import ActorCritic, Networks
from echelon.rollout.buffer import Rollout
from echelon.rollout.collector import Collector
from echelon.rollout.layout import Layout

C = TypeVar("C", bound=TrainConfig)
"""The class of an algorithm's settings."""


class ExtraReward(Stateful, Protocol):
    """A reward added to the environment's, on the rows that a policy collected."""

    def __call__(self, rollout: Rollout, model: ActorCritic, generator: Source) -> tuple[Tensor, dict[str, Tensor]]:
        """The reward `[T, N]` and metrics, 0-d or `[G]`, at the parameters that collected the rollout. Recorded as a
        graph. Draw random numbers with `echelon.device.capture.draw`."""
        ...


@dataclass(frozen=True)
class Takeover:
    """A policy that was replaced by another, or was given other hyperparameters."""

    member: int
    donor: int
    """The member that was drawn to be copied."""
    copied: bool
    """Whether the donor's weights were copied; else the member kept its own."""
    source: int
    """Whose hyperparameters were mutated: the donor's or the member's own."""
    objective: float
    donor_objective: float
    before: dict[str, float]
    """The member's hyperparameters until now."""
    after: dict[str, float]


class Selection(Stateful, Protocol):
    """What happens between iterations: who leads, and who is replaced by whom."""

    leader: int
    """The policy that stands for the run, after the last iteration."""

    def metrics(self) -> dict[str, Tensor]:
        """0-d tensors to log, scores of episodes among them. Recorded as a graph."""
        ...

    def after(self, iteration: int, metrics: Mapping[str, float]) -> Sequence[Takeover]:
        """Decide on the host, write into tensors in place, and return what was done."""
        ...

    def score(self, metrics: Mapping[str, float]) -> float:
        """How good the run is: its best checkpoint is never pruned."""
        ...

    def start(self) -> list[dict[str, float]]:
        """Hyperparameters of every member when the run begins."""
        ...


@dataclass(frozen=True)
class Parts(Generic[C]):
    """The parts of a trainer that a selection may read and write."""

    env: Env
    config: C
    layout: Layout
    settings: Settings
    update: Update
    collector: Collector


@dataclass(frozen=True)
class OffPolicy(Generic[C]):
    """Networks of its own, and what acts and learns with them step by step, not by rollouts and minibatches."""

    model: Callable[..., Networks]
    """From `obs_spec`, `action_dim` and the settings; with `bf16`, products are in bfloat16."""
    learner: Callable[[Any, Env, Layout, C, torch.Generator], Any]
    """From these networks, environments, their layout, settings and generator: what `OffPolicyTrainer` calls, and the
    `pieces` that `echelon bench` times, as `SacLearner` is."""


@dataclass(frozen=True)
class Algorithm(Generic[C]):
    """Everything in which algorithms differ."""

    name: str
    actor_loss: Callable[[Batch, C], ActorLoss] | None
    """The policy's loss on a minibatch; None for one that is off-policy."""
    groups: Callable[[C], Sequence[Group]] = lambda config: ()
    """Who learns from whose rows; every policy learns from its own in any case."""
    settings: type[C] = TrainConfig  # pyright: ignore[reportAssignmentType]
    """The class of its settings, if it has some that other algorithms lack."""
    policies: int = 6
    """Number of policies if the settings leave it unset."""
    one_policy: bool = False
    """Whether it allows only one."""
    networks: Callable[[int], int] = lambda policies: 1
    """Number of networks that M policies are split between: one that all share, one for each, or any between."""
    reads_leader: Callable[[C], bool] = lambda config: False
    """Whether the loss needs the leader's log-probability of the followers' own rows."""
    vectors: Callable[[C, Layout], dict[str, Tensor]] = lambda config, layout: entropy_ladder(config.update, layout)
    """Settings of the update that differ between policies, `[M]` float64 each."""
    extra_reward: Callable[[Env, Layout, C], ExtraReward | None] = lambda env, layout, config: None
    teacher: Callable[[C], TeacherConfig | None] = lambda config: None
    """Optional. A run whose leader shows in every state what it would do: `batch.target`."""
    score: Callable[[Mapping[str, float]], float] = lambda metrics: metrics["return/leader"]
    """How good a run without a selection is after an iteration: its best checkpoint is never pruned."""
    selection: Callable[[Parts[C]], Selection] | None = None
    """Optional. What happens between iterations."""
    off_policy: OffPolicy[C] | None = None
    """Optional. Learns in a way of its own: rollouts, minibatches and all that is above do not concern it."""
    colour: int | None = None
    """Its place in the palette of curves; the next free one unless given."""

    def make_networks(
        self, obs_spec: Mapping[str, Size], action_dim: int, config: C, *, runs: int = 1, bf16: bool = False
    ) -> Any:
        """The `Networks` of a run, or of several `runs` side by side, of all their policies."""
        if self.off_policy is not None:
            return self.off_policy.model(obs_spec, action_dim, config, bf16=bf16)
        policies, networks = runs * config.num_policies, runs * self.networks(config.num_policies)
        return ActorCritic(obs_spec, action_dim, policies, config.model, networks=networks, bf16=bf16)
