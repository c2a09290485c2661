"""The fact sheet's acceptance checks on real rollouts, before the first gradient step and over whole iterations."""

import numpy as np
import pytest
import torch
from learning.iteration import small_config, small_trainer, take_apart
from learning.listing import OWN, listing, where
from torch import Tensor

from echelon.algorithms.adversary import Adversary
from echelon.learning.targets import compute_targets
from echelon.training.trainer import Trainer

SETUPS = [("ppo", 1, 0), ("ppo", 1, 8), ("sapg", 3, 0), ("cpo", 3, 0), ("cpo", 3, 8), ("cpo", 6, 8)]


def make_policies_equal(trainer: Trainer) -> None:
    with torch.no_grad():
        assert trainer.model.phi is not None
        for table in (trainer.model.phi, trainer.model.log_sigma):
            table.copy_(table[:, :1].expand_as(table))


@pytest.mark.parametrize(("algo", "policies", "lstm"), SETUPS)
@pytest.mark.parametrize("critic", [False, True])
def test_ratio_is_one_on_own_rows(algo: str, policies: int, lstm: int, critic: bool) -> None:
    """Sequences start inside episodes, and episodes end inside sequences."""
    trainer = small_trainer(small_config(algo, policies, lstm), critic=critic)
    parts = take_apart(trainer)
    ends = parts.rollout.start[:-1].unflatten(0, (2, 6))
    assert ends[:, 1:].any()
    if lstm:
        assert parts.rollout.state[0].any()
    for minibatch in trainer.plan.shuffle(parts.follower, torch.Generator().manual_seed(0)):
        batch = parts.data.batch(minibatch, trainer.update.reads_leader)
        assert batch.log_ratio[..., batch.own].abs().max() < 1e-6


@pytest.mark.parametrize(("policies", "lstm"), [(3, 0), (3, 8), (6, 8)])
def test_equal_policies_have_ratio_one_on_every_row(policies: int, lstm: int) -> None:
    """The test that finds borrowed sequences starting from the wrong state."""
    trainer = small_trainer(small_config("cpo", policies, lstm))
    make_policies_equal(trainer)
    parts = take_apart(trainer, follower=policies - 1)
    for minibatch in trainer.plan.shuffle(parts.follower, torch.Generator().manual_seed(0)):
        batch = parts.data.batch(minibatch, False)
        assert set(batch.plan.columns) == {"own", "leader_borrows", "follower_pull"}
        assert batch.log_ratio.abs().max() < 1e-6
    # κ = Σ_d (1e-5 - 5e-6/σ_d²) in each group, nothing having moved: the bias of the scheduling KL alone.
    variance = trainer.model.log_std[0].double().exp().square()
    bias = (1e-5 - 5e-6 / variance).sum().item()
    metrics = trainer.update.step(parts.data, minibatch)
    for group in ("own", "leader_borrows", "follower_pull"):
        assert metrics[f"kl/{group}"].item() == pytest.approx(bias, abs=2e-6)
        assert metrics[f"clip_fraction/{group}"].item() == 0.0
    assert metrics["kl/rate"].item() == pytest.approx(bias, abs=2e-6)


def record_rollouts(trainer: Trainer) -> list[dict[str, Tensor]]:
    """Observations of every rollout from now on, as they were acted on."""
    seen: list[dict[str, Tensor]] = []
    collect = trainer.collector.collect

    def spy():
        rollout = collect()
        seen.append({name: x[:-1].clone() for name, x in rollout.obs.items()})
        return rollout

    trainer.collector.collect = spy
    return seen


@pytest.mark.parametrize(("algo", "policies", "lstm"), [("ppo", 1, 0), ("sapg", 3, 8), ("cpo", 3, 0)])
def test_observation_statistics_are_those_of_the_collected_rows(algo: str, policies: int, lstm: int) -> None:
    """Every row once, raw, after the update that trained on it."""
    trainer = small_trainer(small_config(algo, policies, lstm), critic=True)
    seen = record_rollouts(trainer)
    for _ in range(3):
        trainer.iterate()
    for name, norm in trainer.model.obs_norm.items():
        batches = [rollout[name].flatten(0, 1).double().numpy() for rollout in seen]
        rows = np.concatenate(batches)
        count = 1 + len(rows)
        assert norm.count.item() == count == 1 + 3 * 12 * 18
        mean = rows.sum(0) / count
        np.testing.assert_allclose(norm.mean[0], mean, rtol=1e-9, atol=1e-12)
        # Unbiased within a rollout, as the reference weighs it, and one pseudo sample of variance 1 at 0.
        spread = 1 + mean**2
        for batch in batches:
            spread = spread + len(batch) * (batch.var(0, ddof=1) + (batch.mean(0) - mean) ** 2)
        np.testing.assert_allclose(norm.var[0], spread / count, rtol=1e-9)


def test_observation_statistics_are_frozen_within_an_iteration() -> None:
    trainer = small_trainer(small_config("cpo", 3))
    norm, during = trainer.model.obs_norm["policy"], []
    step = trainer.update.step

    def spy(*arguments):
        during.append(norm.mean.clone())
        return step(*arguments)

    trainer.update.step = spy
    trainer.iterate()
    assert len(during) == 4
    assert all(mean.eq(0).all() for mean in during)
    assert norm.mean.ne(0).all()


def test_the_reward_of_the_adversary_changes_followers_own_returns_only() -> None:
    trainer = small_trainer(small_config("cpo", 3, adversary=0.5))
    parts = take_apart(trainer, follower=2)
    assert isinstance(trainer.extra_reward, Adversary)
    reward = trainer.extra_reward.reward(trainer.extra_reward.inputs(parts.rollout, trainer.model))
    followers = trainer.layout.policy_id > 0
    assert reward.shape == (12, 18)
    assert reward[:, ~followers].eq(0).all()
    assert reward[:, followers].lt(-0.01).all()
    settings = trainer.settings, trainer.config.ensemble
    given = trainer.plan, parts.rollout, trainer.model, parts.follower
    without, with_it = (compute_targets(*given, extra, *settings) for extra in (None, reward))
    _, policy, group = listing(trainer.plan, parts.follower)
    change = with_it.returns - without.returns
    touched = where(group, OWN) & (policy > 0)
    assert change[..., ~touched].eq(0).all()
    assert change[..., touched].lt(-0.01).all()  # every reward is negative, so every return falls
    assert with_it.value.equal(without.value)
    assert (with_it.advantage - without.advantage)[..., ~touched].eq(0).all()


@pytest.mark.parametrize(("algo", "policies"), [("ppo", 1), ("cpo", 3)])
def test_the_first_step_is_measured_before_it_is_taken(algo: str, policies: int) -> None:
    """At a rate of 0.01 sigma moves by a percent, which would show in κ: but mean and sigma are both from before."""
    trainer = small_trainer(small_config(algo, policies, learning_rate=0.01))
    parts = take_apart(trainer)
    minibatch = next(iter(trainer.plan.shuffle(parts.follower, torch.Generator().manual_seed(0))))
    variance = trainer.model.log_std.detach().double().exp().square()
    metrics = trainer.update.step(parts.data, minibatch)
    bias = (1e-5 - 5e-6 / variance).sum(-1).mean().item()
    assert metrics["kl/own"].item() == pytest.approx(bias, abs=2e-6)
    assert (trainer.model.log_std.detach().double().exp().square() - variance).abs().max() > 1e-3
