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

from echelon.algorithms import find
from echelon.config import TrainConfig
from echelon.device.capture import Generators, generators_of
from echelon.diagnostics.measure import Distances
from echelon.envs.contract import Env
from echelon.envs.side_by_side import SideBySide
from echelon.errors import UserError
from echelon.learning.plans import Plan
from echelon.rollout.buffer import Rollout
from echelon.rollout.layout import Layout
from echelon.training.trainer import Iteration, Trainer, make_plan

OPTIMIZER_TENSORS = ("flat", "gradient", "rate", "steps", "mean", "square")
SCORE_TENSORS = ("current", "last", "finished", "mixed", "sums")


class StackedTrainer(Trainer):
    """Trains several runs at once.

    `runs` are ordinary trainers, of which only the seed differs. They do not iterate: this one does, and their tensors
    are views of its own. So metrics and checkpoints are taken from each as from a single run.
    """

    def __init__(
        self,
        envs: Sequence[Env],
        configs: Sequence[TrainConfig],
        plan: Plan | None = None,
        whole: Env | None = None,
    ) -> None:
        """`configs` differ in their seed and folder. `plan` is that of a single run; `whole`, if given, steps all
        `envs` at once."""
        require_no_selection(configs[0])
        self._runs = [Trainer(env, config, plan) for env, config in zip(envs, configs, strict=True)]
        one, count = self.runs[0].layout, len(self.runs)
        layout = Layout(
            count * one.num_envs, count * one.policies, one.device, networks=count * one.networks, sizes=one.sizes
        )
        generators = Generators(generators_of(*(run.generator for run in self.runs)))
        super().__init__(
            whole or SideBySide(envs), self.runs[0].config, make_plan(layout, self.runs[0].config), generators
        )
        self._stack_networks()
        self._share_rollout()
        self._share_scores()
        self.take_in()
        for run in self.runs:
            run.timers = self.timers

    @property
    def runs(self) -> Sequence[Trainer]:
        return self._runs

    def _parts(self, x: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
        """Each run's part of a tensor."""
        return x.chunk(len(self.runs), dim)

    def _stack_networks(self) -> None:
        """Weights, statistics and moments of all runs become parts of ours."""
        for name, parameter in self.model.named_parameters():
            for run, part in zip(self.runs, self._parts(parameter.data), strict=True):
                own = run.model.get_parameter(name)
                own.data, own.grad = part.copy_(own.data), None
        for name, buffer in self.model.named_buffers():
            path, _, last = name.rpartition(".")
            for run, part in zip(self.runs, self._parts(buffer), strict=True):
                setattr(run.model.get_submodule(path), last, part.copy_(run.model.get_buffer(name)))
        for name in OPTIMIZER_TENSORS:
            for run, part in zip(self.runs, self._parts(getattr(self.update.optimizer, name)), strict=True):
                setattr(run.update.optimizer, name, part.copy_(getattr(run.update.optimizer, name)))

    def _share_rollout(self) -> None:
        rollout = self.collector.rollout
        for index, run in enumerate(self.runs):
            part = rollout.map(lambda x, index=index: self._parts(x, 1)[index])
            run.collector.rollout = replace(part, log_std=self._parts(rollout.log_std)[index])

    def _share_scores(self) -> None:
        """Point the runs' scores at our tensors; again each time these are reallocated for newly logged names."""
        ours = self.collector.episodes
        for index, run in enumerate(self.runs):
            theirs = run.collector.episodes
            theirs.names, theirs.step_names, theirs.steps = ours.names, ours.step_names, ours.steps
            for name in SCORE_TENSORS:
                setattr(theirs, name, self._parts(getattr(ours, name), -1)[index])

    def iterate_each(self) -> list[Iteration]:
        results = super().iterate_each()
        for run in self.runs:
            run.iteration, run.gradient_steps = self.iteration, run.gradient_steps + run.steps_per_iteration
        return results

    def _metrics(self, found: Mapping[str, Tensor]) -> list[dict[str, Tensor]]:
        self._share_scores()
        parts = [{n: self._parts(x)[i] if x.dim() else x for n, x in found.items()} for i in range(len(self.runs))]
        return [metrics for run, part in zip(self.runs, parts, strict=True) for metrics in run._metrics(part)]

    def _measure(self, rollout: Rollout) -> list[Distances]:
        return [distances for run in self.runs for distances in run._measure(run.collector.rollout)]

    def take_in(self) -> None:
        self.iteration = self.runs[0].iteration
        scores, first = self.collector.episodes, self.runs[0].collector.episodes
        states = [run.collector.episodes.state_dict() for run in self.runs]
        merged: Any = {
            name: torch.cat([state[name] for state in states], -1)  # pyright: ignore
            for name in SCORE_TENSORS
            if name != "sums"
        }
        scores.load_state_dict(merged | {"names": first.names, "step_names": first.step_names})
        self._share_scores()
        if self.extra_reward is not None:
            states = [run.extra_reward.state_dict() for run in self.runs if run.extra_reward is not None]
            self.extra_reward.load_state_dict(_join(states, self.config.algo))

    def sync_learned(self) -> None:
        super().sync_learned()
        for index, run in enumerate(self.runs):
            if self.extra_reward is not None and run.extra_reward is not None:
                run.extra_reward.load_state_dict(_split(self.extra_reward.state_dict(), index, len(self.runs)))


def require_no_selection(config: TrainConfig) -> None:
    """Raise a `UserError` if the algorithm has a selection (PBT), which decides on the host between iterations."""
    if find(config.algo).selection is not None:
        raise UserError(
            f"{config.algo} chooses between its members by itself, so its seeds cannot train side by side; train "
            "them one after another, as echelon compare does"
        )


def _join(states: Sequence[Any], algo: str) -> Any:
    """The state of all runs' extra rewards together. Every tensor of it has a leading dimension, the networks."""
    first = states[0]
    if isinstance(first, Mapping):
        return {name: _join([state[name] for state in states], algo) for name in first}
    if isinstance(first, Tensor) and first.dim():
        return torch.cat(list(states))
    raise UserError(
        f"the extra reward of {algo} has a state that is not of its networks, so its seeds cannot train side by side; "
        "train them one after another, as echelon compare does"
    )


def _split(state: Any, index: int, count: int) -> Any:
    """One run's part of it."""
    if isinstance(state, Mapping):
        return {name: _split(value, index, count) for name, value in state.items()}
    return state.chunk(count)[index]
