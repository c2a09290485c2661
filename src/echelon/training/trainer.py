"""One iteration of training, and everything a run is made of."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from echelon.algorithms import complete, find
from echelon.algorithms.algorithm import Parts, Takeover
from echelon.config import TrainConfig
from echelon.device.capture import Captured, Source, generators_of
from echelon.device.compile_progress import announced
from echelon.device.fusion import cache_folder, fused, fuses
from echelon.device.timers import Timers
from echelon.diagnostics import Distances, measure
from echelon.envs.contract import Adaptive, Capturable, Env, State, Stateful, interface_of
from echelon.learning.plans import Plan
from echelon.learning.settings import Settings
from echelon.learning.targets import Targets, compute_targets, explained_variance
from echelon.learning.update import Update
from echelon.models import gaussian
from echelon.models.actor_critic import ActorCritic
from echelon.ranks import ALONE, Ranks
from echelon.rollout.buffer import Rollout
from echelon.rollout.collector import Collector
from echelon.rollout.layout import LEADER, Layout
from echelon.runs.checkpoint import tensors_of

T = TypeVar("T")


@dataclass
class Iteration:
    """Results of one iteration, on the host."""

    metrics: dict[str, float]
    kl_matrix: list[list[float]] | None
    """KL from row to column, when it was measured."""
    takeovers: Sequence[Takeover] = ()
    """Members of a population that were replaced."""


@dataclass
class Prepared:
    """Inputs of an update, with the rollout."""

    targets: Targets
    drawn: Tensor
    """Policy ids `[G]` of the followers that leaders borrow from."""
    metrics: dict[str, Tensor]


class Trainer:
    """Collect, targets, update: the same lines for every algorithm.

    On CUDA each of the three is recorded as a graph and replayed, unless `config.capture` is off.

    Each of several ranks has a trainer with its part of the environments; all learn the same.
    """

    def __init__(
        self,
        env: Env,
        config: TrainConfig,
        plan: Plan | None = None,
        generator: Source | None = None,
        ranks: Ranks = ALONE,
    ) -> None:
        """`config` describes the whole run, `env` holds this rank's environments. `plan` and `generator` are made from
        them unless given."""
        self.env, self.config = env, (config := complete(config))
        self.algorithm = find(config.algo)
        device = env.device
        self._fuses = fuses(device, config.fuse)
        self.plan = plan or make_plan(make_layout(config, device, ranks), config)
        self.layout = self.plan.layout
        self.ranks = ranks = self.layout.ranks
        if isinstance(env, Adaptive):
            env.join_ranks(ranks.mean)
        self.settings = Settings(config.update, self.layout, self.algorithm.vectors(config, self.layout))
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(config.seed)
            sizes, runs = (env.obs_spec, env.action_dim), self.layout.policies // config.num_policies
            model = self.algorithm.make_networks(*sizes, config, runs=runs, bf16=config.precision == "bf16")
            self.model: ActorCritic = model.to(device)
            self.extra_reward = self.algorithm.extra_reward(env, self.layout, config)
        self.generator = generator or torch.Generator(device).manual_seed(ranks.seed(config.seed))
        self.common = ranks.common_generator(self.generator, config.seed, device)
        """For random numbers that must be the same on all ranks."""
        self._warm = False
        """Whether everything is compiled."""
        self.timers = Timers.for_device(device)
        self.iteration = self.gradient_steps = 0
        self.preface = ""
        """What a user should know before training starts."""
        self.runs: Sequence[Trainer] = [self]
        """The runs that are trained: this one. Several seeds are several (`echelon.training.stacked`)."""
        self._build()

    def _build(self) -> None:
        """Build what acts and what learns."""
        env, config, algorithm = self.env, self.config, self.algorithm
        assert algorithm.actor_loss is not None
        self.collector = Collector(env, self.model, self.layout, config.update, self.generator, fuse=self._fuses)
        loss, reads_leader = algorithm.actor_loss, algorithm.reads_leader(config)
        self.update = Update(self.model, loss, self.plan, self.settings, config, reads_leader=reads_leader)
        self.selection = None
        if algorithm.selection is not None:
            parts = Parts(env, config, self.layout, self.settings, self.update, self.collector)
            self.selection = algorithm.selection(parts)
        self._compute_targets = fused(compute_targets, env.device, enabled=self._fuses)
        self._collect = self._captured(lambda: self.collector.collect(), acts=True)
        self._prepare = self._captured(self._make_targets)
        self._learn, self._passes = self._captured(self._update), self.update.passes
        self._prepared: Prepared | None = None

    def _captured(self, run: Callable[[], T], *, acts: bool = False) -> Captured[T]:
        """`run`, recorded as a CUDA graph. If it steps the environment (`acts`), the environment must support that."""
        env, config, mode = self.env, self.config, self.ranks.capture_mode
        if not acts:
            generators = dict.fromkeys(generators_of(self.generator, self.common))  # alone, both are one
            return Captured(run, env.device, generators, enabled=config.capture, mode=mode)
        if not isinstance(env, Capturable):
            return Captured(run, env.device, enabled=False)
        generators = generators_of(self.generator, env.generator)
        return Captured(run, env.device, generators, env.capturing, enabled=config.capture, mode=mode)

    def iterate(self) -> Iteration:
        """One iteration of a trainer with one run."""
        (result,) = self.iterate_each()
        return result

    def iterate_each(self) -> list[Iteration]:
        """One rollout and all updates on it: the results of each run. The host reads from the device once, at the
        end."""
        compiles, self._warm = self._fuses and not self._warm, True
        with announced(cache_folder(), "for these sizes") if compiles else nullcontext():
            return self._iterate()

    @property
    def learns(self) -> bool:
        """Whether there are updates in every iteration, as there are unless a replay must fill first."""
        return True

    def missing(self) -> str:
        """What a resumed run has to make up for, in words; nothing if it continues where it stopped."""
        return ""

    def take_in(self) -> None:
        """Take over the state of `runs` after it was loaded into them."""

    def _iterate(self) -> list[Iteration]:
        timers = self.timers
        timers.reset()
        if self.iteration == 0:
            self.collector.reset()
        with timers("collect"):
            rollout = self._collect()
        with timers("diagnostics"):
            distances = self._measure(rollout)
        with timers("targets"):
            self._prepared = self._prepare()
        if self.update.passes != self._passes:  # another number of passes is another graph
            self._learn, self._passes = self._captured(self._update), self.update.passes
        self.update.noise.advance((self.iteration + 1) * self.config.steps_per_iteration)
        with timers("update"):
            names, values = self._learn()
        self.gradient_steps += self.steps_per_iteration
        self.iteration += 1
        with timers("read"):
            results = read(names, values, distances)
        if self.selection is not None:
            results[0].takeovers = self.selection.after(self.iteration, results[0].metrics)
        timers.settle()
        return results

    @property
    def steps_per_iteration(self) -> int:
        """Optimizer steps of an iteration."""
        return self.update.passes * self.plan.minibatches

    def _make_targets(self) -> Prepared:
        """Targets of the rollout, at the parameters that collected it."""
        rollout, extra, metrics = self.collector.rollout, None, {}
        if self.extra_reward is not None:
            extra, metrics = self.extra_reward(rollout, self.model, self.generator)
        drawn = self.layout.draw_followers(self.common)
        targets = self._compute_targets(
            self.plan, rollout, self.model, drawn, extra, self.settings, self.config.ensemble
        )
        own = slice(0, self.plan.sizes[0])
        metrics["explained"] = explained_variance(targets.value[..., own], targets.returns[..., own], self.ranks)
        outside = (rollout.action.abs() > 1).float().unflatten(1, (self.layout.networks, -1))
        metrics["action/clamped"] = outside.mean((0, 2, 3))
        return Prepared(targets, drawn, metrics)

    def _update(self) -> tuple[list[list[str]], Tensor]:
        """All gradient steps on the rollout; names of each run's metrics, and the values of all."""
        prepared, rollout = self._prepared, self.collector.rollout
        assert prepared is not None
        found = prepared.metrics | self.update.run(rollout, prepared.targets, prepared.drawn, self.generator)
        far = self.model.merge_observations({name: x[:-1] for name, x in rollout.obs.items()}, self.ranks)
        found["clipped/observations"] = far * self.ranks.size
        metrics = self._metrics(found)
        values = [x.float() for run in metrics for x in run.values()]
        return [list(run) for run in metrics], self.ranks.mean(torch.stack(values))

    def _metrics(self, found: Mapping[str, Tensor]) -> list[dict[str, Tensor]]:
        """The iteration's metrics of each run, 0-d each. `found` are those of the update, `[G]` or 0-d."""
        scores = self.collector.episodes.metrics() if self.selection is None else self.selection.metrics()
        log_std = self.model.log_std.detach()
        for i, (entropy, sigma) in enumerate(zip(gaussian.entropy(log_std), log_std.exp().mean(-1), strict=True)):
            scores |= {f"entropy/policy_{i}": entropy, f"sigma/policy_{i}": sigma}
        return [self.update.summary(found) | scores]

    def _measure(self, rollout: Rollout) -> list[Distances]:
        """Distances between the policies of each run; none in most iterations."""
        every, last = self.config.diagnostics.every, self.iteration + 1 == self.config.num_iterations
        if self.layout.policies == 1 or not every or (self.iteration % every and not last):
            return []
        return [measure(self.model, rollout, self.layout, self.config.diagnostics.states, self.config.update)]

    def state_dict(self) -> State:
        """Everything needed to resume bit for bit."""
        return {**self.learned(), **self.own_state()}

    def learned(self) -> State:
        """The part of the state that is the same on all ranks."""
        return {
            "iteration": self.iteration,
            "gradient_steps": self.gradient_steps,
            "leader": self.selection.leader if self.selection else LEADER,
            "model": self.model.state_dict(),
            "optimizer": self.update.optimizer.state_dict(),
            "extra_reward": self.extra_reward.state_dict() if self.extra_reward else {},
            "selection": self.selection.state_dict() if self.selection else {},
            "interface": interface_of(self.env),
            **({} if self.common is self.generator else {"common": generators_of(self.common)[0].get_state()}),
        }

    def own_state(self) -> State:
        """The part of the state that each rank has for itself: environments and random numbers."""
        return {
            "collector": self.collector.state_dict(),
            "env": self.env.state_dict() if isinstance(self.env, Stateful) else {},
            "generator": generators_of(self.generator)[0].get_state(),
            "policy_id": self.layout.policy_id,
        }

    def load_state_dict(self, state: Any) -> None:
        self.load_learned(state)
        self.load_own_state(state)

    def load_learned(self, state: Any) -> None:
        self.iteration, self.gradient_steps = state["iteration"], state["gradient_steps"]
        self.model.load_state_dict(state["model"])
        self.update.optimizer.load_state_dict(state["optimizer"])
        if self.extra_reward:
            self.extra_reward.load_state_dict(state["extra_reward"])
        if self.selection:
            self.selection.load_state_dict(state["selection"])
            self.selection.leader = state["leader"]
        if "common" in state and self.common is not self.generator:
            generators_of(self.common)[0].set_state(state["common"].cpu())

    def load_own_state(self, state: Any) -> None:
        self.collector.load_state_dict(state["collector"])
        if isinstance(self.env, Stateful) and state["env"]:
            self.env.load_state_dict(state["env"])
        else:
            self.collector.reset()
        generators_of(self.generator)[0].set_state(state["generator"].cpu())
        self.collector.hand_over(state["policy_id"].to(self.layout.device) != self.layout.policy_id)

    def tensors(self) -> list[Tensor]:
        """What networks and optimizer hold, `[G, ...]` each."""
        moments = [x for _, x in tensors_of(self.update.optimizer.state_dict())]
        return [*self.model.parameters(), *self.model.buffers(), *moments]

    def hold_sigma(self) -> None:
        """Move sigma to where new settings want it, before it acts: a jump within an update would spoil its ratios."""
        self.update.noise.advance(self.iteration * self.config.steps_per_iteration)
        self.update.noise.hold(self.model.log_sigma.data)
        self.model.bound_sigma()

    def sync_learned(self) -> None:
        """Copy what rank 0 has learned to all ranks, since unlike machines may round differently, and to `runs`. Call
        it before one is saved."""
        extra = self.extra_reward.state_dict() if self.extra_reward else {}
        self.ranks.copy_first_([*self.tensors(), *(x for _, x in tensors_of(extra))])


def make_layout(config: TrainConfig, device: torch.device | str = "cpu", ranks: Ranks = ALONE) -> Layout:
    """Which policy drives which environment of this rank."""
    policies = config.num_policies
    networks = find(config.algo).networks(policies)
    whole = Layout(config.num_envs, policies, device, networks=networks, sizes=config.envs_per_policy)
    return whole.divided(ranks)


def make_plan(layout: Layout, config: TrainConfig) -> Plan:
    """What an update trains on. Raises a `UserError` when the environments do not split into equal minibatches."""
    update, algorithm = config.update, find(config.algo)
    groups, length = algorithm.groups(config), update.sequence if config.model.lstm else 1
    minibatches = 1 if algorithm.off_policy else update.minibatches or float(update.minibatch_envs)
    return Plan(layout, update.horizon, length, groups, minibatches=minibatches)


def read(names: Sequence[Sequence[str]], values: Tensor, distances: Sequence[Distances]) -> list[Iteration]:
    """Read metrics and distances of all runs from the device in one transfer."""
    parts = [values]
    for kl, more in distances:
        parts += [*(x.float()[None] for x in more.values()), kl.float().flatten()]
    numbers = iter((torch.cat(parts) if distances else values).tolist())
    results = [Iteration({name: next(numbers) for name in run}, None) for run in names]
    for result, (kl, more) in zip(results, distances, strict=bool(distances)):
        result.metrics |= {name: next(numbers) for name in more}
        size = range(len(kl))
        result.kl_matrix = [[next(numbers) for _ in size] for _ in size]
    return results
