"""A population's update against PPO's: M members do what M separate runs do, and one member does it to the bit."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from algorithms.test_population import ENVS, STILL, population, selection
from learning.iteration import small_config
from rollout.stub_env import DriftEnv
from tiny import differing

from echelon.algorithms import REGISTERED
from echelon.algorithms.cpo import CPO
from echelon.config import TrainConfig
from echelon.learning.plans import Minibatch
from echelon.learning.targets import compute_targets
from echelon.models.actor_critic import ActorCritic
from echelon.training.trainer import Trainer


def member(model: ActorCritic, index: int) -> dict[str, torch.Tensor]:
    return {name: x[index : index + 1] for name, x in model.state_dict().items()}


def recorded(trainer: Trainer, monkeypatch: pytest.MonkeyPatch) -> list[list[Minibatch]]:
    """The minibatches of each pass from now on."""
    passes: list[list[Minibatch]] = []
    shuffle = trainer.plan.shuffle

    def kept(*arguments: Any) -> Iterator[Minibatch]:
        passes.append(list(shuffle(*arguments)))
        return iter(passes[-1])

    monkeypatch.setattr(trainer.plan, "shuffle", kept)
    return passes


@pytest.mark.parametrize("schedule", ["mini_epoch", "minibatch"])
@pytest.mark.parametrize("lstm", [0, 8])
def test_one_member_is_ppo_to_the_bit(lstm: int, schedule: str) -> None:
    """Network, statistics, moments, rate, environment and random numbers, after four iterations with a check in each;
    numbers that float32 cannot hold exactly, so that a detour over it would show."""
    odd = {"clip": 0.17, "critic_coef": 3.3, "entropy_coef": 0.0123, "bounds_coef": 0.07, "discount": 0.987}
    pbt = replace(STILL, interval=12 * ENVS, initial_delay=0)
    config = replace(small_config("pbt", 1, lstm, num_envs=ENVS, grad_norm=0.3, rate_schedule=schedule, **odd), pbt=pbt)
    found, expected = (Trainer(DriftEnv(ENVS, critic=True), replace(config, algo=algo)) for algo in ("pbt", "ppo"))
    for _ in range(4):
        metrics, wanted = found.iterate().metrics, expected.iterate().metrics
        for name in ("loss/actor", "loss/critic", "loss/bounds", "loss/entropy", "kl/own", "grad_norm"):
            assert metrics[name] == pytest.approx(wanted[name], rel=1e-5), name
        same = ("return/leader", "length/leader", "successes/leader", "lr")
        assert not differing(*({name: x[name] for name in same} for x in (metrics, wanted)))
    ours, theirs = found.state_dict(), expected.state_dict()
    for name in ("iteration", "model", "optimizer", "collector", "env", "generator"):
        assert not differing(ours[name], theirs[name], name)
    assert theirs["optimizer"]["rate"].item() != config.update.learning_rate


SETTINGS = (
    {},
    {"clip": 0.1, "learning_rate": 1e-3, "critic_coef": 2.0, "entropy_coef": 0.05, "discount": 0.9},
    {"mini_epochs": 1, "grad_norm": 0.2, "kl_threshold": 0.004, "bounds_coef": 0.5},
)
"""What each of three members has instead of the common settings."""


@pytest.mark.parametrize("schedule", ["mini_epoch", "minibatch"])
@pytest.mark.parametrize("lstm", [0, 8])
def test_members_are_separate_ppo_runs(lstm: int, schedule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six iterations on the same data, with different hyperparameters: parameters and statistics to 1e-5."""
    trainer = population(3, STILL, lstm, DriftEnv(3 * ENVS, critic=True), rate_schedule=schedule)
    selection(trainer).write(SETTINGS)
    runs = [_separate(trainer, i) for i in range(3)]
    iterate_together(trainer, runs, 6, monkeypatch)
    taken = [6 * run.config.update.mini_epochs * 2 for run in runs]
    assert trainer.update.optimizer.steps.tolist() == [run.update.optimizer.steps.item() for run in runs] == taken


def _separate(trainer: Trainer, index: int) -> Trainer:
    """A PPO run of one member's settings, with its network and a block of environments."""
    config: TrainConfig = trainer.config
    update = replace(config.update, **SETTINGS[index])
    run = Trainer(DriftEnv(ENVS, critic=True), replace(config, algo="ppo", policies=1, num_envs=ENVS, update=update))
    run.model.load_state_dict(member(trainer.model, index))
    return run


def iterate_together(whole: Trainer, runs: list[Trainer], iterations: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole trains, and after every iteration each run on its part of the same data; then networks and rates are
    equal to 1e-5, and the runs themselves differ."""
    passes = recorded(whole, monkeypatch)
    for _ in range(iterations):
        passes.clear()
        whole.iterate()
        for index, run in enumerate(runs):
            follow(run, index, whole, passes)
    for index, run in enumerate(runs):
        found = member(whole.model, index)
        for name, x in run.model.state_dict().items():
            torch.testing.assert_close(found[name], x, rtol=1e-5, atol=1e-5, msg=lambda m, at=f"{index} {name}": at + m)
        torch.testing.assert_close(whole.update.optimizer.rate[index : index + 1], run.update.optimizer.rate)
    assert (runs[0].model.mean_head.weight - runs[1].model.mean_head.weight).abs().max() > 0.01


def follow(run: Trainer, index: int, whole: Trainer, passes: list[list[Minibatch]]) -> None:
    """The run's update on the part of one network of what the whole has just learned from."""
    envs, each, queue = run.layout.num_envs, run.layout.policies, iter(passes)
    block = slice(envs * index, envs * (index + 1))
    rollout = whole.collector.rollout.map(lambda x: x[:, block])
    rollout.log_std = rollout.log_std[each * index : each * (index + 1)]

    def shuffle(*_: Any) -> Iterator[Minibatch]:
        for minibatch in next(queue):
            parts = (x.unflatten(0, (whole.layout.networks, -1)) for x in (minibatch.unit, minibatch.evaluation))
            unit, evaluation = (part[index] for part in parts)
            chunk, env = unit // whole.layout.num_envs, unit % whole.layout.num_envs - block.start
            yield Minibatch(chunk * envs + env, evaluation - index * run.plan.size)

    run.plan.shuffle = shuffle
    assert whole._prepared is not None
    drawn = whole._prepared.drawn[index : index + 1] - each * index
    targets = compute_targets(run.plan, rollout, run.model, drawn, None, run.settings, run.config.ensemble)
    run.update.run(rollout, targets, drawn, run.generator)
    run.model.merge_observations({name: x[:-1] for name, x in rollout.obs.items()})


@pytest.mark.parametrize("lstm", [0, 8])
def test_two_ensembles_side_by_side_are_two_runs(lstm: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between an ensemble and a population: two networks of three policies, each CPO by itself. Four iterations on the
    same data, in the same minibatches, with the same followers drawn: parameters and statistics to 1e-5."""
    monkeypatch.setitem(REGISTERED, "two", replace(CPO, networks=lambda policies: 2))
    config = small_config("two", 6, lstm, num_envs=36)
    both = Trainer(DriftEnv(36, critic=True), config)
    alone = [Trainer(DriftEnv(18, critic=True), replace(config, algo="cpo", policies=3, num_envs=18)) for _ in range(2)]
    for index, run in enumerate(alone):
        run.model.load_state_dict(member(both.model, index))
    iterate_together(both, alone, 4, monkeypatch)
