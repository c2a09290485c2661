"""A population's update against PPO's: M members do what M separate runs do, and one member does it to the bit."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from learning.iteration import small_config
from rollout.stub_env import DriftEnv
from torch import Tensor

from echelon.algorithms.ppo import PPO
from echelon.config import TrainConfig, UpdateConfig
from echelon.learning.hyperparameters import Hyperparameters
from echelon.learning.plans import Minibatch
from echelon.learning.population_update import PopulationUpdate
from echelon.learning.targets import compute_targets
from echelon.models.population import Population
from echelon.rollout.buffer import Rollout
from echelon.rollout.collector import Collector
from echelon.rollout.layout import Layout
from echelon.training.trainer import Trainer, make_plan

ENVS = 6
"""Of each member."""


class Stepped:
    """A population trained by hand: what the trainer does, without what it does besides."""

    def __init__(self, config: TrainConfig, members: int, **env: Any) -> None:
        self.env = DriftEnv(config.num_envs, seed=0, **env)
        layout = Layout(config.num_envs, members)
        self.plan = make_plan(layout, config)
        torch.manual_seed(config.seed)
        self.model = Population(self.env.obs_spec, self.env.action_dim, members, config.model)
        self.generator = torch.Generator().manual_seed(config.seed)
        self.collector = Collector(self.env, self.model, layout, config.update, self.generator)
        self.update = PopulationUpdate(self.model, PPO, self.plan, config, {})
        self.collector.reset()

    def iterate(self) -> dict[str, Tensor]:
        rollout = self.collector.collect()
        follower = self.plan.draw_follower(self.generator)
        metrics = self.update.run(rollout, self.update.targets(rollout), follower, self.generator)
        self.model.merge_observations({name: x[:-1] for name, x in rollout.obs.items()})
        return metrics


@pytest.mark.parametrize("schedule", ["mini_epoch", "minibatch"])
@pytest.mark.parametrize("lstm", [0, 8])
def test_one_member_is_ppo_to_the_bit(lstm: int, schedule: str) -> None:
    """Network, statistics, moments, rate and random numbers, after four iterations; numbers that float32 cannot hold
    exactly, so that a detour over it would show."""
    odd = {"clip": 0.17, "critic_coef": 3.3, "entropy_coef": 0.0123, "bounds_coef": 0.07, "discount": 0.987}
    config = small_config("ppo", None, lstm, grad_norm=0.3, rate_schedule=schedule, **odd)
    expected = Trainer(DriftEnv(config.num_envs, seed=0, critic=True), config)
    found = Stepped(config, 1, critic=True)
    for _ in range(4):
        metrics, wanted = found.iterate(), expected.iterate().metrics
        for name in ("loss/actor", "loss/critic", "loss/bounds", "loss/entropy", "kl/own", "grad_norm", "lr"):
            assert metrics[name].item() == pytest.approx(wanted[name], rel=1e-5), name
    member = found.model.member(0).state_dict()
    for name, x in expected.model.state_dict().items():
        assert member[name].equal(x), name
    moments = expected.update.optimizer.state_dict()
    assert found.update.optimizer.rate[0].equal(moments["rate"])
    assert found.update.optimizer.mean[0].equal(moments["moments"]["exp_avg"])
    assert found.update.optimizer.square[0].equal(moments["moments"]["exp_avg_sq"])
    assert found.update.optimizer.steps[0].item() == moments["moments"]["step"].item()
    assert found.generator.get_state().equal(expected.generator.get_state())
    assert moments["rate"].item() != config.update.learning_rate


SETTINGS = (
    {},
    {"clip": 0.1, "learning_rate": 1e-3, "critic_coef": 2.0, "entropy_coef": 0.05, "discount": 0.9},
    {"mini_epochs": 1, "grad_norm": 0.2, "kl_threshold": 0.004, "bounds_coef": 0.5},
)
"""What each of three members has instead of the common settings."""


@pytest.mark.parametrize("schedule", ["mini_epoch", "minibatch"])
@pytest.mark.parametrize("lstm", [0, 8])
def test_members_are_separate_ppo_runs(lstm: int, schedule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten iterations on the same data, with different hyperparameters: parameters and statistics to 1e-5."""
    config = small_config("ppo", None, lstm, num_envs=3 * ENVS, rate_schedule=schedule)
    population = Stepped(config, 3, critic=True)
    population.update.hyperparameters.write(SETTINGS)
    runs = [_separate(config, i, population.model) for i in range(3)]
    passes: list[list[Minibatch]] = []
    shuffle = population.plan.shuffle

    def kept(*arguments: Any) -> Iterator[Minibatch]:
        passes.append(list(shuffle(*arguments)))
        return iter(passes[-1])

    monkeypatch.setattr(population.plan, "shuffle", kept)
    for _ in range(10):
        passes.clear()
        population.iterate()
        for i, run in enumerate(runs):
            _follow(run, i, population, iter(passes))
    for i, run in enumerate(runs):
        member = population.model.member(i).state_dict()
        for name, x in run.model.state_dict().items():
            torch.testing.assert_close(member[name], x, rtol=1e-5, atol=1e-5, msg=lambda m, at=f"{i} {name}": at + m)
        torch.testing.assert_close(population.update.optimizer.rate[i], run.update.optimizer.rate)
        steps = run.update.optimizer.state_dict()["moments"]["step"]
        assert population.update.optimizer.steps[i] == steps == 10 * run.config.update.mini_epochs * 2
    first, second, _ = (run.model.mean_head.weight for run in runs)
    assert (first - second).abs().max() > 0.01


def _separate(config: TrainConfig, member: int, model: Population) -> Trainer:
    """A PPO run of one member's settings, with its network and a block of environments."""
    config = replace(config, num_envs=ENVS, update=replace(config.update, **SETTINGS[member]))
    run = Trainer(DriftEnv(ENVS, critic=True), config)
    run.model.load_state_dict(model.member(member).state_dict())
    return run


def _follow(run: Trainer, member: int, population: Stepped, passes: Iterator[list[Minibatch]]) -> None:
    """The run's update on the member's part of what the population has just learned from."""
    block = slice(ENVS * member, ENVS * (member + 1))
    given = population.collector.rollout
    fields = {name: x[:, block] for name, x in vars(given).items() if name not in ("obs", "log_std")}
    obs = {name: x[:, block] for name, x in given.obs.items()}
    rollout = Rollout(obs=obs, log_std=given.log_std[member][None], **fields)

    def shuffle(*_: Any) -> Iterator[Minibatch]:
        for minibatch in next(passes):
            unit = minibatch.unit.unflatten(0, (3, -1))[member]
            chunk, env = unit // (3 * ENVS), unit % (3 * ENVS) - block.start
            yield Minibatch(chunk * ENVS + env, chunk * ENVS + env)

    run.plan.shuffle = shuffle
    follower, update = torch.tensor([1]), run.config.update
    targets = compute_targets(run.plan, rollout, run.model, follower, None, update, run.config.ensemble)
    run.update.run(rollout, targets, follower, run.generator)
    run.model.merge_observations({name: x[:-1] for name, x in obs.items()})


def test_a_member_whose_passes_are_over_stays_as_it_is() -> None:
    """Parameters, moments, step count and rate, to the bit, while the others go on."""
    found = {}
    for passes in (1, 4):
        config = small_config("ppo", None, num_envs=3 * ENVS, mini_epochs=4)
        population = Stepped(config, 3)
        population.update.hyperparameters.write([{"mini_epochs": 4}, {"mini_epochs": 1}, {"mini_epochs": 4}])
        population.update.passes = passes
        population.iterate()
        optimizer = population.update.optimizer
        found[passes] = [population.model.flat.clone(), *optimizer.state_dict().values()]
    for before, after in zip(found[1], found[4], strict=True):
        assert before[1].equal(after[1])
        assert not before[0].equal(after[0])
        assert not before[2].equal(after[2])


def test_every_rate_follows_its_own_threshold() -> None:
    """κ = 0.02 lies in the band of 0.016, above twice 0.004 and below half of 0.1; the last member sits out."""
    population = Stepped(small_config("ppo", None, num_envs=4 * ENVS), 4)
    update = population.update
    update.hyperparameters.write([{"kl_threshold": x, "learning_rate": 1e-3} for x in (0.016, 0.004, 0.1, 0.1)])
    update._adapt(torch.full((4,), 0.02), torch.tensor([True, True, True, False]))
    assert update.optimizer.rate.tolist() == pytest.approx([1e-3, 1e-3 / 1.5, 1.5e-3, 1e-3], rel=1e-6)


def test_a_learning_rate_of_zero_stands_still() -> None:
    population = Stepped(small_config("ppo", None, num_envs=2 * ENVS), 2)
    population.update.hyperparameters.write([{"learning_rate": 0.0}, {}])
    before = population.model.flat.clone()
    population.iterate()
    assert population.model.flat[0].equal(before[0])
    assert not population.model.flat[1].equal(before[1])


def test_a_copy_goes_on_exactly_as_its_donor_would() -> None:
    """With the donor's data and hyperparameters too: the next update of both is the same."""
    population = Stepped(small_config("ppo", None, 8, num_envs=3 * ENVS), 3)
    population.update.hyperparameters.write([{}, {"mini_epochs": 1.0}, {}])
    for _ in range(2):
        population.iterate()
    population.update.hyperparameters.write([{}, {"mini_epochs": 2.0}, {}])
    optimizer, flat = population.update.optimizer, population.model.flat
    bystander = flat[0].clone()
    assert not flat[1].equal(flat[2])
    population.update.copy(2, 1)
    assert flat[0].equal(bystander)
    optimizer.rate[1] = optimizer.rate[2]
    rollout = population.collector.collect()
    for x in (*rollout.obs.values(), *(x for name, x in vars(rollout).items() if name not in ("obs", "log_std"))):
        x[:, ENVS : 2 * ENVS] = x[:, 2 * ENVS :]
    rollout.log_std[1] = rollout.log_std[2]
    shuffle = population.plan.shuffle

    def same(*arguments: Any) -> Iterator[Minibatch]:
        for minibatch in shuffle(*arguments):
            unit = minibatch.unit.unflatten(0, (3, -1)).clone()
            unit[1] = unit[2] - ENVS
            yield Minibatch(unit.flatten(), unit.flatten())

    population.plan.shuffle = same
    population.update.run(rollout, population.update.targets(rollout), torch.tensor([1]), population.generator)
    torch.testing.assert_close(flat[1], flat[2], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(optimizer.mean[1], optimizer.mean[2], rtol=1e-5, atol=1e-7)
    assert optimizer.steps[1] == optimizer.steps[2]
    for first, second in zip(population.model.member(1).buffers(), population.model.member(2).buffers(), strict=True):
        torch.testing.assert_close(first, second)
    assert (flat[1] - flat[0]).abs().max() > 0.01


def test_reward_scales_reach_the_environments_of_their_member() -> None:
    population = Stepped(small_config("ppo", None, num_envs=2 * ENVS), 2)
    bonus = torch.full((2 * ENVS,), 250.0)
    found = Hyperparameters(UpdateConfig(), torch.full((2,), 1e-3), {"bonus": bonus}, population.plan.layout)
    assert found.read()[1]["env.bonus"] == 250.0
    found.write([{}, {"env.bonus": 300.0, "clip": 0.25}])
    assert bonus.tolist() == [250.0] * ENVS + [300.0] * ENVS
    assert [row["clip"] for row in found.read()] == [0.2, 0.25]
    assert found.read()[0]["learning_rate"] == pytest.approx(1e-3)
    saved = found.state_dict()
    found.write([{"env.bonus": 1.0, "discount": 0.5}, {}])
    found.load_state_dict(saved)
    assert bonus.tolist() == [250.0] * ENVS + [300.0] * ENVS
    assert found.read()[0]["discount"] == 0.99
