"""The fact sheet's acceptance checks on real rollouts, before the first gradient step and over whole iterations."""

import numpy as np
import pytest
import torch
from learning.iteration import small_config, small_trainer, take_apart
from learning.listing import FOLLOWER_PULL, LEADER_BORROWS, OWN, listing, where
from torch import Tensor

from echelon.algorithms.adversary import Adversary
from echelon.config import EnsembleConfig
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


@pytest.mark.parametrize("lstm", [0, 8])
def test_equal_policies_have_equal_values_and_targets(lstm: int) -> None:
    trainer = small_trainer(small_config("cpo", 3, lstm))
    make_policies_equal(trainer)
    parts = take_apart(trainer, follower=2)
    plan, layout = trainer.plan, trainer.layout
    own, borrowed, pulled = parts.targets.value[:, 0].split(plan.sizes, dim=1)
    table = own.unflatten(1, (plan.chunks, layout.num_envs))
    close = {"rtol": 1e-5, "atol": 1e-6}
    torch.testing.assert_close(borrowed, table[:, :, layout.environments(2)].flatten(1), **close)
    for copy in pulled.chunk(2, dim=1):
        torch.testing.assert_close(copy, table[:, :, layout.environments(0)].flatten(1), **close)
    # Targets are one-step ones: equal for every follower, but not the leader's own, which look further.
    first, second = parts.targets.returns[:, 0, -plan.sizes[2] :].chunk(2, dim=1)
    torch.testing.assert_close(first, second, **close)


@pytest.mark.parametrize("scope", ["global", "group", "policy"])
def test_advantages_are_standardised_over_their_scope(scope: str) -> None:
    """Mean 0 and unbiased deviation 1 over the whole plan, and then not so within a group; or within each."""
    config = small_config("cpo", 3, num_envs=20, minibatches=1, ensemble=EnsembleConfig(advantage_scope=scope))
    trainer = small_trainer(config)
    parts = take_apart(trainer, follower=2)
    _, policy, groups = listing(trainer.plan, parts.follower)
    group = torch.tensor([[OWN, LEADER_BORROWS, FOLLOWER_PULL].index(name) for name in groups])
    advantage = parts.data.advantage[:, 0]
    keys = {"global": torch.zeros_like(group), "group": group, "policy": group * 10 + policy}[scope]
    assert len(keys.unique()) == {"global": 1, "group": 3, "policy": 6}[scope]
    for key in keys.unique():
        part = advantage[:, keys == key]
        assert part.mean().item() == pytest.approx(0.0, abs=1e-5)
        assert part.std().item() == pytest.approx(1.0, abs=1e-5)
    if scope == "global":
        assert all(abs(advantage[:, group == g].std().item() - 1) > 1e-2 for g in range(3))


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


@pytest.mark.parametrize(("algo", "policies", "lstm"), [("ppo", 1, 0), ("sapg", 3, 8), ("cpo", 3, 0), ("cpo", 4, 8)])
def test_value_statistics_take_in_every_evaluation_twice(algo: str, policies: int, lstm: int) -> None:
    """Old values, then returns. 18 environments of 4 policies are uneven: the leader has 6, so 3·6·12 pull rows."""
    trainer = small_trainer(small_config(algo, policies, lstm))
    rows = {"ppo": 216, "sapg": 216 + 72, "cpo": 432 if policies == 3 else 216 + 48 + 216}[algo]
    for iteration in (1, 2):
        trainer.iterate()
        assert trainer.model.value_norm.count.item() == 1 + iteration * 2 * rows


def test_old_values_are_normalised_between_the_two_merges() -> None:
    trainer = small_trainer(small_config("cpo", 3, minibatches=1))
    parts = take_apart(trainer)
    value, returns = (x.double().numpy().ravel() for x in (parts.targets.value, parts.targets.returns))

    def statistics(batches):
        count = 1 + sum(len(b) for b in batches)
        mean = sum(b.sum() for b in batches) / count
        spread = 1 + mean**2 + sum(len(b) * (b.var(ddof=1) + (b.mean() - mean) ** 2) for b in batches)
        return mean, spread / count

    for found, raw, batches in ((parts.data.value, value, [value]), (parts.data.returns, returns, [value, returns])):
        mean, var = statistics(batches)
        expected = np.clip((raw - mean) / np.sqrt(var + 1e-5), -5, 5)
        np.testing.assert_allclose(found.numpy().ravel(), expected, rtol=1e-4, atol=1e-5)


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
