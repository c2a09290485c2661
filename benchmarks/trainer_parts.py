"""The parts of a trainer that benchmarks look at. Only this file, `spread.py` and `peers/ours.py` know its insides."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from echelon import tasks
from echelon.config import TrainConfig
from echelon.presets import preset
from echelon.training.loop import set_up_torch
from echelon.training.resolve import resolve
from echelon.training.trainer import Trainer

SOME_REWARD = 0.01
"""Adversarial coefficient where it is asked for and the preset has none; time does not depend on it."""


def settings(task: str, algo: Any, num_envs: int, adversary: str | None = None, **changes: Any) -> TrainConfig:
    """The task's preset for an algorithm, with the adversarial reward as it is there, or `on` or `off`.

    Members of a population all do the preset's work: with mutations, some would take more passes than others.
    """
    config = replace(preset(task), algo=algo, num_envs=num_envs, **changes)
    coef = {None: config.adversary.coef, "off": 0.0, "on": config.adversary.coef or SOME_REWARD}[adversary]
    config = replace(config, adversary=replace(config.adversary, coef=coef))
    return replace(config, pbt=replace(config.pbt, mutate_at_start=False))


def make_env(config: TrainConfig, device: torch.device) -> Any:
    """The environments of a run, after torch has been set up for it."""
    resolve(config)
    set_up_torch(config)
    env = tasks.make(config.task, config.env, config.num_envs, device, config.seed, spread_clocks=True)
    env.reset()
    return env


def train(env: Any, config: TrainConfig) -> Trainer:
    """A trainer whose three graphs are replayed from now on: one iteration as it is, one recorded, one replayed."""
    trainer = Trainer(env, config)
    for _ in range(3):
        trainer.iterate()
    return trainer


def graphs(trainer: Trainer) -> dict[str, Callable[[], object]]:
    """What an iteration is made of; each can be called alone."""
    return {"collect": trainer._collect, "targets": trainer._prepare, "update": trainer._learn}


def last_actions(trainer: Trainer) -> Tensor:
    """`[T, N, A]`: those of the last rollout."""
    return trainer.collector.rollout.action.clone()


@dataclass(frozen=True)
class UpdateSize:
    """Rows in a pass over an iteration's data."""

    evaluations: int
    """A row under one policy, for one reason."""
    units: int
    """Rows that were collected."""


def update_size(config: TrainConfig) -> UpdateSize:
    """A `UserError` where the environments do not split into equal minibatches, or between members."""
    plan = resolve(config).plan
    rows = plan.layout.networks * plan.length
    return UpdateSize(plan.size * rows, plan.sizes[0] * rows)
