"""Whole iterations: algorithms that must agree do so to the bit, and a resumed trainer runs as if never stopped."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from learning.iteration import small_config
from rollout.stub_env import DriftEnv
from tiny import differing

from echelon.algorithms import AdversaryConfig, PullConfig
from echelon.config import ModelConfig, TrainConfig, UpdateConfig
from echelon.runs import checkpoint
from echelon.runs.folder import RunFolder
from echelon.tasks import make, preset
from echelon.training.trainer import Iteration, Trainer


def drifting(config: TrainConfig, env_seed: int = 0, **env: Any) -> Trainer:
    return Trainer(DriftEnv(config.num_envs, seed=env_seed, **env), config)


def swinging(seed: int) -> Trainer:
    config = replace(
        preset("CartpoleSwingup"),
        num_envs=12,
        policies=3,
        seed=seed,
        model=ModelConfig(hidden=(16, 8), phi_dim=4),
        update=UpdateConfig(horizon=8, mini_epochs=2),
    )
    return Trainer(make(config.task, config.env, 12, torch.device("cpu"), seed, spread_clocks=True), config)


def assert_same(found: Any, expected: Any) -> None:
    assert differing(found, expected) == []


@pytest.mark.parametrize(("algo", "lstm"), [("sapg", 0), ("cpo", 8)])
def test_without_followers_every_algorithm_is_ppo_to_the_bit(algo: str, lstm: int) -> None:
    """Plan, targets, losses, random numbers and all: three iterations end in the same place."""
    # Settings of followers and of what is borrowed must not matter.
    pull = PullConfig(beta=5.0, normalise=True, reverse_temperature=0.5)
    extra = {"entropy_scale": 0.3, "entropy_coef": 0.01}
    other = replace(small_config(algo, 1, lstm, adversary=0.5, **extra), pull=pull)
    ours, theirs = drifting(small_config("ppo", None, lstm, **extra)), drifting(other)
    for _ in range(3):
        expected, found = ours.iterate().metrics, theirs.iterate().metrics
        assert_same({name: found[name] for name in expected}, expected)
    assert_same(theirs.state_dict(), ours.state_dict())


def test_the_seed_decides_everything_to_the_bit_and_the_global_generator_nothing() -> None:
    config = small_config("cpo", 3, adversary=0.1)
    torch.manual_seed(1)
    first = drifting(config)
    drawn = torch.rand(3)
    torch.manual_seed(1)
    assert torch.rand(3).equal(drawn)  # building a trainer took nothing from it
    torch.manual_seed(2)
    assert_same(drifting(config).state_dict(), first.state_dict())
    first, second, other = (swinging(seed) for seed in (4, 4, 5))
    for _ in range(3):
        assert_same(second.iterate().metrics, first.iterate().metrics)
        other.iterate()
    assert_same(second.state_dict(), first.state_dict())
    assert not other.model.mean_head.weight.equal(first.model.mean_head.weight)


def check_resume(build: Callable[[], Trainer], path: Path, iterations: int, saved: int) -> list[Iteration]:
    """Iterations through a checkpoint on disk equal those of a run that was never stopped, which are returned:
    parameters, moments, rate, statistics, environment, scores, recurrent state, random numbers and takeovers."""
    whole, first, second = build(), build(), build()
    folder = RunFolder(path, whole.config)
    expected = [whole.iterate() for _ in range(iterations)]
    for _ in range(saved):
        first.iterate()
    checkpoint.save(folder, first.iteration, first.state_dict())
    first.iterate()  # what happens after a save must not reach it
    second.iterate()  # and what a trainer did before it is loaded must not matter
    found = checkpoint.find(folder)
    assert found is not None
    second.load_state_dict(found.state)
    assert second.iteration == saved
    for result in expected[saved:]:
        again = second.iterate()
        assert_same(again.metrics, result.metrics)
        assert again.takeovers == result.takeovers
    assert_same(second.state_dict(), whole.state_dict())
    assert second.update.passes == whole.update.passes
    assert (second.update.optimizer.rate != whole.config.update.learning_rate).all()
    return expected


def test_a_resumed_trainer_continues_as_if_never_stopped(tmp_path: Path) -> None:
    for build in (
        lambda: drifting(small_config("ppo")),
        lambda: drifting(small_config("ppo"), critic=True),
        lambda: drifting(small_config("cpo", 3, 8, adversary=0.2)),
        lambda: swinging(0),
    ):
        check_resume(build, tmp_path, iterations=4, saved=2)


def test_an_iteration_reports_every_policy_and_group() -> None:
    one = drifting(small_config("cpo", 3, adversary=0.2))
    for _ in range(2):
        metrics = one.iterate().metrics
    assert one.iteration == 2
    groups = ("own", "leader_borrows", "follower_pull")
    names = {f"{kind}/{group}" for kind in ("loss", "kl", "clip_fraction") for group in groups}
    names |= {f"{kind}/policy_{i}" for kind in ("return", "length", "entropy", "sigma") for i in range(3)}
    names |= {"return/leader", "successes/leader", "env/height", "lr", "grad_norm", "kl/rate", "pull/weight"}
    names |= {"adversary/loss", "adversary/accuracy", "adversary/reward", "loss/actor", "loss/critic", "loss/entropy"}
    assert names <= set(metrics)
    assert all(math.isfinite(value) for value in metrics.values())
    assert metrics["sigma/policy_1"] == pytest.approx(one.model.log_std[1].exp().mean().item(), rel=1e-6)
    expected = (one.model.log_std[2] + 0.5 + 0.5 * math.log(2 * math.pi)).sum().item()
    assert metrics["entropy/policy_2"] == pytest.approx(expected, rel=1e-5)
    # A discriminator that is only watched has a loss, and pays nothing.
    watching = replace(small_config("cpo", 3), adversary=AdversaryConfig(watch=True, hidden=(16,)))
    metrics = drifting(watching).iterate().metrics
    assert metrics["adversary/reward"] == 0 < metrics["adversary/loss"]
    # The smallest possible run: one environment, one step, one policy, nothing to take a deviation over.
    one = drifting(small_config("ppo", num_envs=1, minibatches=1, horizon=1, mini_epochs=1))
    for _ in range(2):
        one.iterate()
    assert all(p.isfinite().all() for p in one.model.parameters())


@pytest.mark.parametrize("algo", ["cpo", "pbt"])
def test_a_run_in_bf16_learns_from_float32_numbers(algo: str) -> None:
    """Two iterations; whatever is stored of the rollout is float32, and parameters have moved and are finite."""
    model = ModelConfig(hidden=(16,))
    config = replace(preset("DeceptiveReach"), algo=algo, num_envs=48, precision="bf16", model=model)
    trainer = Trainer(make(config.task, config.env, 48, torch.device("cpu"), 0), config)
    before = torch.cat([p.detach().flatten() for p in trainer.model.parameters()])
    with torch.backends.mkldnn.flags(enabled=False):  # see tests/models/test_actor_critic.py
        for _ in range(2):
            trainer.iterate()
    after = torch.cat([p.detach().flatten() for p in trainer.model.parameters()])
    rollout = trainer.collector.rollout
    assert {rollout.mean.dtype, rollout.value.dtype, rollout.log_prob.dtype, after.dtype} == {torch.float32}
    assert torch.isfinite(after).all()
    assert not after.equal(before)


@pytest.mark.parametrize("lstm", [0, 8])
def test_blocks_may_change_their_sizes_during_a_run(lstm: int) -> None:
    """6, 6, 6 become 10, 4, 4: 6 to 9, 12 and 13 change hands, without memory, and their episodes do not count."""
    first = drifting(small_config("cpo", 3, lstm, num_envs=18))
    for _ in range(2):
        first.iterate()
    finished = first.collector.episodes.finished.clone()
    state = first.collector.rollout.state[-1].clone()
    second = Trainer(first.env, replace(first.config, envs_per_policy=(10, 4, 4)))
    second.load_state_dict(first.state_dict())
    moved = torch.tensor([6 <= env < 10 or 12 <= env < 14 for env in range(18)])
    assert second.layout.policy_id.bincount().tolist() == [10, 4, 4]
    assert second.iteration == 2
    assert second.collector.episodes.mixed.equal(moved)
    assert second.collector.episodes.finished.equal(finished & ~moved)
    assert second.collector.rollout.state[-1].equal(state * ~moved[:, None])
    assert_same(second.model.state_dict(), first.model.state_dict())
    metrics = second.iterate().metrics
    assert second.iteration == 3
    assert all(math.isfinite(value) for name, value in metrics.items() if name.startswith(("loss/", "kl/")))
    assert second.plan.blocks.units == ((10, 4, 4) if lstm else (60, 24, 24))


def test_sigma_ends_where_it_is_told_to() -> None:
    """An entropy bonus raises every sigma, without a bound beyond it."""
    config = small_config("sapg", 3, minibatches=1, entropy_coef=1.0, rate_schedule="fixed")
    config = replace(config, update=replace(config.update, learning_rate=0.05))
    for bound in (1.5, None):
        trainer = drifting(replace(config, model=replace(config.model, max_sigma=bound)))
        for _ in range(20):
            trainer.iterate()
        largest = trainer.model.log_std.exp().max().item()
        assert largest > 1.51 if bound is None else largest == pytest.approx(bound)
