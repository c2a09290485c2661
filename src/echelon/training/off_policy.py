"""One iteration of an algorithm that learns step by step from what it stored."""

from typing import Any

import torch
from torch import Tensor

from echelon.device.capture import generators_of
from echelon.training.trainer import Iteration, Trainer, read


class OffPolicyTrainer(Trainer):
    """A step of all environments, then the updates for it, `update.horizon` times.

    On CUDA a step and its updates are a graph each, which an iteration replays; the host reads once, at its end.
    """

    def _build(self) -> None:
        assert self.algorithm.off_policy is not None
        (generator,) = generators_of(self.generator)
        make = self.algorithm.off_policy.learner
        self.learner = learner = make(self.model, self.env, self.layout, self.config, generator)
        self.update: Any = learner
        self.collector, self.selection, self.preface = learner.collector, None, learner.preface
        self._collect = self._captured(learner.collector.collect, acts=True)
        self._learn_step = self._captured(learner.learn)
        self._summarise = self._captured(self._summary)
        self._missing = learner.missing()
        """Steps to collect before it learns, as the host counts them."""

    @property
    def steps_per_iteration(self) -> int:
        return self.config.update.horizon * self.learner.updates

    def _iterate(self) -> list[Iteration]:
        timers, learner = self.timers, self.learner
        timers.reset()
        if self.iteration == 0:
            self.collector.reset()
        learner.begin()
        for _ in range(self.config.update.horizon):
            with timers("collect"):
                self._collect()
            self._missing -= 1
            with timers("update"):
                if self._missing <= 0:
                    self._learn_step()
                    self.gradient_steps += learner.updates
        self._warm = self.learns
        self.iteration += 1
        with timers("read"):
            results = read(*self._summarise(), [])
        timers.settle()
        return results

    def _summary(self) -> tuple[list[list[str]], Tensor]:
        metrics = self.learner.metrics()
        return [list(metrics)], self.ranks.mean(torch.stack([x.float() for x in metrics.values()]))

    def load_own_state(self, state: Any) -> None:
        super().load_own_state(state)
        self._missing = self.learner.missing()

    def hold_sigma(self) -> None:
        """Do nothing: the actor's sigma depends on the state, and no setting holds it."""

    @property
    def learns(self) -> bool:
        return self._missing <= 0

    def missing(self) -> str:
        if self.learns:
            return ""
        rows = f"{self._missing * self.config.num_envs:,} environment steps"
        empty = "the replay is empty (--sac.save-replay saves it, for as many ranks)"
        return f"{empty}, so {rows} fill it first: learning continues, but not to the bit"
