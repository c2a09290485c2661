"""One iteration of training, and everything a run is made of."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from echelon.algorithms import ALGORITHMS
from echelon.algorithms.adversary import Adversary
from echelon.algorithms.pbt import Takeover
from echelon.config import TrainConfig
from echelon.device.capture import Captured
from echelon.device.compile_progress import announced
from echelon.device.fusion import cache_folder, fused, fuses
from echelon.device.timers import Timers
from echelon.diagnostics.measure import Distances, measure
from echelon.envs.contract import Capturable, Env, State
from echelon.learning.plans import Plan
from echelon.learning.population_update import PopulationUpdate
from echelon.learning.targets import Targets, compute_targets
from echelon.learning.update import Update
from echelon.models import gaussian
from echelon.models.actor_critic import ActorCritic
from echelon.models.population import Model
from echelon.rollout.buffer import Rollout
from echelon.rollout.collector import Collector
from echelon.rollout.layout import Layout

T = TypeVar("T")


@dataclass
class Iteration:
    """What one iteration found out, on the host."""

    metrics: dict[str, float]
    kl_matrix: list[list[float]] | None
    """KL from row to column, when it was measured."""
    takeovers: Sequence[Takeover] = ()
    """Who was replaced in a population."""


@dataclass
class Lessons:
    """What an update learns from."""

    targets: Targets
    follower: Tensor
    """Policy id `[1]` of the follower the leader borrows from."""
    metrics: dict[str, Tensor]


class Trainer:
    """Collect, targets, update: the same lines for every algorithm, which differ by their plan and loss.

    On CUDA each of the three is recorded as a graph and replayed, unless `config.capture` is off.
    """

    def __init__(self, env: Env, config: TrainConfig) -> None:
        self.env, self.config = env, config
        device, update = env.device, config.update
        self._fuses = fuses(device, config.fuse and config.algo != "pbt")  # not done for stacked networks
        self.layout = Layout(env.num_envs, config.num_policies, device)
        self.plan = make_plan(self.layout, config)
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(config.seed)
            self.model = self._build_model().to(device)
            self.adversary = self._build_adversary()
        self.generator = torch.Generator(device).manual_seed(config.seed)
        self.collector = Collector(env, self.model, self.layout, update, self.generator, fuse=self._fuses)
        self.update = self._build_update()
        self._compute_targets = fused(compute_targets, device, enabled=self._fuses)
        self._collect = self._captured(lambda: self.collector.collect(), acts=True)
        self._prepare = self._captured(self._make_lessons)
        self._learn = self._captured(self._update)
        self._lessons: Lessons | None = None
        self._warm = False
        """Whether all that can be compiled is."""
        self.timers = Timers.for_device(device)
        self.iteration = 0

    def _captured(self, run: Callable[[], T], *, acts: bool = False) -> Captured[T]:
        """`run` as a graph. What acts can only be one if the environment can."""
        env, config = self.env, self.config
        if not acts:
            return Captured(run, env.device, (self.generator,), enabled=config.capture)
        if not isinstance(env, Capturable):
            return Captured(run, env.device, enabled=False)
        return Captured(run, env.device, (self.generator, env.generator), env.capturing, enabled=config.capture)

    def _build_model(self) -> Model:
        env, config = self.env, self.config
        bf16 = config.precision == "bf16"
        return ActorCritic(env.obs_spec, env.action_dim, config.num_policies, config.model, bf16=bf16)

    def _build_update(self) -> Update | PopulationUpdate:
        assert isinstance(self.model, ActorCritic)
        return Update(self.model, ALGORITHMS[self.config.algo], self.plan, self.config)

    def _build_adversary(self) -> Adversary | None:
        if not self.config.adversary.coef or self.layout.policies == 1 or self.config.algo != "cpo":
            return None
        return Adversary(self.env.obs_spec["policy"], self.env.action_dim, self.layout, self.config)

    def iterate(self) -> Iteration:
        """One rollout and all updates on it. The host reads from the device once, at the end."""
        if self._warm or not self._fuses:
            return self._iterate()
        self._warm = True
        with announced(cache_folder(), "for these sizes"):
            return self._iterate()

    def _iterate(self) -> Iteration:
        timers = self.timers
        timers.reset()
        if self.iteration == 0:
            self.collector.reset()
        with timers("collect"):
            rollout = self._collect()
        with timers("diagnostics"):
            distances = self._measure(rollout)
        with timers("targets"):
            self._lessons = self._prepare()
        with timers("update"):
            metrics = self._learn()
        self.iteration += 1
        with timers("read"):
            result = _read(metrics, distances)
        timers.settle()
        return result

    def score(self, metrics: Mapping[str, float]) -> float:
        """How good the run is after an iteration: its best checkpoint is never pruned."""
        return metrics["return/leader"]

    def _make_lessons(self) -> Lessons:
        """Targets of the rollout, at the parameters that collected it."""
        adversarial, metrics = self._adversarial_reward(self.collector.rollout)
        follower = self.plan.draw_follower(self.generator)
        return Lessons(self._targets(follower, adversarial), follower, metrics)

    def _targets(self, follower: Tensor, adversarial: Tensor | None) -> Targets:
        config, rollout = self.config, self.collector.rollout
        return self._compute_targets(
            self.plan, rollout, self.model, follower, adversarial, config.update, config.ensemble
        )

    def _update(self) -> dict[str, Tensor]:
        """All gradient steps on the rollout; the iteration's metrics."""
        lessons, rollout = self._lessons, self.collector.rollout
        assert lessons is not None
        metrics = lessons.metrics | self.update.run(rollout, lessons.targets, lessons.follower, self.generator)
        self.model.merge_observations({name: x[:-1] for name, x in rollout.obs.items()})
        return metrics | self._episode_metrics() | self._policy_metrics()

    def _measure(self, rollout: Rollout) -> Distances | None:
        every = self.config.diagnostics.every
        if self.layout.policies == 1 or not every or self.iteration % every:
            return None
        return measure(self.model, rollout, self.layout, self.config.diagnostics.states)

    def _adversarial_reward(self, rollout: Rollout) -> tuple[Tensor | None, dict[str, Tensor]]:
        """The followers' extra reward, scored before the discriminator learns from the same rows."""
        if self.adversary is None:
            return None, {}
        assert isinstance(self.model, ActorCritic)
        inputs = self.adversary.inputs(rollout, self.model)
        reward = self.adversary.reward(rollout, inputs)
        metrics = self.adversary.learn(rollout, inputs, self.generator)
        return reward, metrics | {"adversary/reward": self.layout.follower_blocks(reward, 1).mean()}

    def _episode_metrics(self) -> dict[str, Tensor]:
        return self.collector.episodes.metrics()

    @torch.no_grad()
    def _policy_metrics(self) -> dict[str, Tensor]:
        log_std = self.model.log_std
        entropy, sigma = gaussian.entropy(log_std), log_std.exp().mean(-1)
        names = range(self.layout.policies)
        return {f"entropy/policy_{i}": entropy[i] for i in names} | {f"sigma/policy_{i}": sigma[i] for i in names}

    def state_dict(self) -> State:
        """All that is needed to go on to the bit."""
        return {
            "iteration": self.iteration,
            "model": self.model.state_dict(),
            "optimizer": self.update.optimizer.state_dict(),
            "adversary": self.adversary.state_dict() if self.adversary else {},
            "collector": self.collector.state_dict(),
            "env": self.env.state_dict(),
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: Any) -> None:
        self.iteration = state["iteration"]
        self.model.load_state_dict(state["model"])
        self.update.optimizer.load_state_dict(state["optimizer"])
        if self.adversary:
            self.adversary.load_state_dict(state["adversary"])
        self.collector.load_state_dict(state["collector"])
        self.env.load_state_dict(state["env"])
        self.generator.set_state(state["generator"].cpu())


def make_plan(layout: Layout, config: TrainConfig) -> Plan:
    """What an update trains on. Raises a `UserError` when the environments do not split into equal minibatches."""
    algorithm, update = ALGORITHMS[config.algo], config.update
    return Plan(
        layout,
        update.horizon,
        update.sequence if config.model.lstm else 1,
        borrows=algorithm.borrows,
        pulls=algorithm.pulls,
        minibatches=update.minibatches or float(update.minibatch_envs),
    )


def _read(metrics: dict[str, Tensor], distances: Distances | None) -> Iteration:
    """Everything in one transfer."""
    if distances is not None:
        metrics = metrics | distances.metrics()
    parts = [torch.stack([x.float() for x in metrics.values()])]
    if distances is not None:
        parts.append(distances.kl.float().flatten())
    values = torch.cat(parts).tolist()
    matrix = None
    if distances is not None:
        size, flat = distances.kl.shape[0], values[len(metrics) :]
        matrix = [flat[i * size : (i + 1) * size] for i in range(size)]
    return Iteration(dict(zip(metrics, values[: len(metrics)], strict=True)), matrix)
