"""Runs that differ in their seed, trained as one: all their networks and environments side by side.

Networks share nothing, so S runs of G networks are S·G stacked networks, which is how a population trains. What is
random comes from each run's own generators, in the order of that run alone, so each learns what it would by itself, but
for the rounding of larger products.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from echelon.config import TrainConfig
from echelon.device.capture import generators_of
from echelon.diagnostics import Distances
from echelon.envs.contract import Env
from echelon.envs.side_by_side import SideBySide
from echelon.errors import UserError
from echelon.learning.plans import Plan
from echelon.rollout.buffer import Rollout
from echelon.rollout.layout import Layout
from echelon.training.trainer import Iteration, Trainer, make_plan

SCORES = ("current", "last", "finished", "mixed")


class InTurn:
    """Runs that cannot be stacked, one trainer each, which iterate in turn: each is to the bit what it is alone."""

    def __init__(self, runs: Sequence[Trainer]) -> None:
        self.runs, first = runs, runs[0]
        self.env, self.collector, self.timers, self.preface = first.env, first.collector, first.timers, first.preface

    @property
    def iteration(self) -> int:
        return self.runs[0].iteration

    def iterate_each(self) -> list[Iteration]:
        return [run.iterate() for run in self.runs]

    def take_in(self) -> None:
        """Do nothing: what was loaded into the runs is theirs."""

    def sync_learned(self) -> None:
        for run in self.runs:
            run.sync_learned()


class StackedTrainer(Trainer):
    """Trains several runs at once.

    `runs` are ordinary trainers, of which only the seed differs. They do not iterate: this one does, and their tensors
    are views of its own. So metrics and checkpoints are taken from each as from a single run.
    """

    def __init__(
        self, envs: Sequence[Env], configs: Sequence[TrainConfig], plan: Plan | None = None, whole: Env | None = None
    ) -> None:
        """`configs` differ in their seed and folder. `plan` is that of a single run; `whole`, if given, steps all
        `envs` at once."""
        runs = [Trainer(env, config, plan) for env, config in zip(envs, configs, strict=True)]
        one, config, count = runs[0].layout, runs[0].config, len(runs)
        layout = Layout(
            count * one.num_envs, count * one.policies, one.device, networks=count * one.networks, sizes=one.sizes
        )
        generators = generators_of(*(run.generator for run in runs))
        super().__init__(whole or SideBySide(envs), config, make_plan(layout, config), generators)
        self.runs = runs
        rollout = self.collector.rollout
        for index, run in enumerate(runs):
            for ours, theirs in zip(self.tensors(), run.tensors(), strict=True):
                theirs.data = self._part(ours.data, index).copy_(theirs.data)
            part = rollout.map(lambda x, index=index: self._part(x, index, 1))
            run.collector.rollout = replace(part, log_std=self._part(rollout.log_std, index))
            run.timers = self.timers
        self.take_in()

    def _part(self, x: Tensor, index: int, dim: int = 0) -> Tensor:
        """A run's part of a tensor."""
        return x.chunk(len(self.runs), dim)[index]

    def _share_scores(self) -> None:
        """Point the runs' scores at our tensors; again each time these are reallocated for newly logged names."""
        ours = self.collector.episodes
        for index, run in enumerate(self.runs):
            theirs = run.collector.episodes
            theirs.names, theirs.step_names, theirs.steps = ours.names, ours.step_names, ours.steps
            for name in (*SCORES, "sums"):
                setattr(theirs, name, self._part(getattr(ours, name), index, -1))

    def iterate_each(self) -> list[Iteration]:
        results = super().iterate_each()
        for run in self.runs:
            run.iteration, run.gradient_steps = self.iteration, run.gradient_steps + run.steps_per_iteration
        return results

    def _metrics(self, found: Mapping[str, Tensor]) -> list[dict[str, Tensor]]:
        self._share_scores()
        parts = [{n: self._part(x, i) if x.dim() else x for n, x in found.items()} for i in range(len(self.runs))]
        return [metrics for run, part in zip(self.runs, parts, strict=True) for metrics in run._metrics(part)]

    def _measure(self, rollout: Rollout) -> list[Distances]:
        return [distances for run in self.runs for distances in run._measure(run.collector.rollout)]

    def take_in(self) -> None:
        self.iteration, scores = self.runs[0].iteration, [run.collector.episodes for run in self.runs]
        joined = {name: torch.cat([getattr(one, name) for one in scores], -1) for name in SCORES}
        names = {"names": scores[0].names, "step_names": scores[0].step_names}
        self.collector.episodes.load_state_dict(names | joined)
        self._share_scores()
        if self.extra_reward is not None:
            states = [run.extra_reward.state_dict() for run in self.runs if run.extra_reward is not None]
            self.extra_reward.load_state_dict(self._joined(states))

    def sync_learned(self) -> None:
        super().sync_learned()
        for index, run in enumerate(self.runs):
            if self.extra_reward is not None and run.extra_reward is not None:
                run.extra_reward.load_state_dict(self._split(self.extra_reward.state_dict(), index))

    def _joined(self, states: Sequence[Any]) -> Any:
        """The state of all runs' extra rewards together. Every tensor of it has a leading dimension, the networks."""
        first = states[0]
        if isinstance(first, Mapping):
            return {name: self._joined([state[name] for state in states]) for name in first}
        if isinstance(first, Tensor) and first.dim():
            return torch.cat(list(states))
        odd = f"the extra reward of {self.config.algo} has a state that is not of its networks"
        raise UserError(f"{odd}, so its seeds cannot train side by side; echelon compare trains them in turn")

    def _split(self, state: Any, index: int) -> Any:
        """One run's part of it."""
        if isinstance(state, Mapping):
            return {name: self._split(value, index) for name, value in state.items()}
        return self._part(state, index)
