"""The fact sheet's acceptance checks on real rollouts. What moves which parameter is compared with the oracle."""

import numpy as np
import pytest
import torch
from learning.iteration import (
    FOLLOWER_PULL,
    LEADER_BORROWS,
    OWN,
    Parts,
    listing,
    small_config,
    small_trainer,
    take_apart,
    where,
)
from models.test_normaliser import reference_statistics
from torch import Tensor

from echelon.config import EnsembleConfig
from echelon.training.trainer import Trainer

SETUPS = [("ppo", 1, 0), ("ppo", 1, 8), ("sapg", 3, 0), ("cpo", 3, 0), ("cpo", 3, 8), ("cpo", 6, 8)]


def make_policies_equal(trainer: Trainer) -> None:
    with torch.no_grad():
        assert trainer.model.phi is not None
        for table in (trainer.model.phi, trainer.model.log_sigma):
            table.copy_(table[:, :1].expand_as(table))


@pytest.mark.parametrize(("algo", "policies", "lstm"), SETUPS)
def test_ratio_is_one_on_own_rows(algo: str, policies: int, lstm: int) -> None:
    """Sequences start inside episodes, and episodes end inside sequences."""
    for critic in (False, True):
        parts = take_apart(small_trainer(small_config(algo, policies, lstm), critic=critic))
        ends = parts.rollout.start[:-1].unflatten(0, (2, 6))
        assert ends[:, 1:].any()
        assert not lstm or parts.rollout.state[0].any()
        assert max(batch.log_ratio[..., batch.own].abs().max() for batch in parts.batches()) < 1e-6


@pytest.mark.parametrize(("policies", "lstm"), [(3, 0), (3, 8), (6, 8)])
def test_equal_policies_have_ratio_one_on_every_row(policies: int, lstm: int) -> None:
    """The test that finds borrowed sequences starting from the wrong state."""
    trainer = small_trainer(small_config("cpo", policies, lstm))
    make_policies_equal(trainer)
    parts = take_apart(trainer, follower=policies - 1)
    for batch in parts.batches():
        assert set(batch.plan.columns) == {OWN, LEADER_BORROWS, FOLLOWER_PULL}
        assert batch.log_ratio.abs().max() < 1e-6
    # κ = Σ_d (1e-5 - 5e-6/σ_d²) in each group, nothing having moved: the bias of the scheduling KL alone.
    variance = trainer.model.log_std[0].double().exp().square()
    bias = (1e-5 - 5e-6 / variance).sum().item()
    metrics = trainer.update.step(parts.data, next(parts.minibatches()))
    kls = [metrics[f"kl/{group}"].item() for group in ("rate", OWN, LEADER_BORROWS, FOLLOWER_PULL)]
    assert kls == pytest.approx([bias] * 4, abs=2e-6)
    assert not any(metrics[f"clip_fraction/{group}"] for group in (OWN, LEADER_BORROWS, FOLLOWER_PULL))


@pytest.mark.parametrize(("algo", "policies", "lstm"), [("ppo", 1, 0), ("sapg", 3, 8), ("cpo", 3, 0)])
def test_observation_statistics_are_those_of_the_collected_rows(algo: str, policies: int, lstm: int) -> None:
    """Every row once, raw, after the update that trained on it; frozen while that lasts."""
    trainer = small_trainer(small_config(algo, policies, lstm), critic=True)
    collect, step = trainer.collector.collect, trainer.update.step
    seen: list[dict[str, Tensor]] = []
    during: list[float] = []

    def collected():
        rollout = collect()
        seen.append({name: x[:-1].clone() for name, x in rollout.obs.items()})
        return rollout

    def stepped(*arguments):
        during.append(trainer.model.obs_norm["policy"].count.item())
        return step(*arguments)

    trainer.collector.collect, trainer.update.step = collected, stepped
    for _ in range(3):
        trainer.iterate()
    assert during == [1 + k * 12 * 18 for k in range(3) for _ in range(4)]
    for name, norm in trainer.model.obs_norm.items():
        batches = [rollout[name].flatten(0, 1).double().numpy() for rollout in seen]
        mean, var, count = reference_statistics(batches)
        assert norm.count.item() == count == 1 + 3 * 12 * 18
        np.testing.assert_allclose(norm.mean[0], mean, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(norm.var[0], var, rtol=1e-9)


@pytest.mark.parametrize(("algo", "policies"), [("ppo", 1), ("cpo", 3)])
def test_the_first_step_is_measured_before_it_is_taken(algo: str, policies: int) -> None:
    """At a rate of 0.01 sigma moves by a percent, which would show in κ: but mean and sigma are both from before."""
    trainer = small_trainer(small_config(algo, policies, learning_rate=0.01))
    parts = take_apart(trainer)
    variance = trainer.model.log_std.detach().double().exp().square()
    metrics = trainer.update.step(parts.data, next(parts.minibatches()))
    bias = (1e-5 - 5e-6 / variance).sum(-1).mean().item()
    assert metrics["kl/own"].item() == pytest.approx(bias, abs=2e-6)
    assert (trainer.model.log_std.detach().double().exp().square() - variance).abs().max() > 1e-3


@pytest.mark.parametrize("advantage", [-2.0, 2.0])
@pytest.mark.parametrize("centre", ["one", "old_ratio"])
def test_an_impossible_row_leaves_all_gradients_finite(advantage: float, centre: str) -> None:
    """A log-ratio of 200 in a row of any group, in float32; e^200 is more than float32 holds."""
    trainer = small_trainer(small_config("cpo", 3, minibatches=1, ensemble=EnsembleConfig(clip_centre=centre)))
    parts = take_apart(trainer)
    unit, _, groups = listing(trainer.plan, parts.follower)
    for group in (OWN, LEADER_BORROWS, FOLLOWER_PULL):
        column = where(groups, group).nonzero()[3]
        row, before = trainer.plan.rows(unit[column]).item(), parts.data.advantage[..., column].clone()
        parts.data.log_prob[row] -= 200.0
        parts.data.advantage[..., column] = advantage
        assert parts.batch().log_ratio.max() > 190
        assert_finite(parts)
        parts.data.log_prob[row] += 200.0
        parts.data.advantage[..., column] = before


def assert_finite(parts: Parts) -> None:
    assert parts.trainer.update.loss(parts.batch()).total.isfinite()
    assert all(gradient.isfinite().all() for gradient in parts.gradients().values())


@pytest.mark.parametrize("advantage", [-2.0, 0.0, 2.0])
def test_an_impossible_row_of_the_rollout_does_not_move_the_clip_interval_to_infinity(advantage: float) -> None:
    """The leader's old ratio on a follower's row, the centre of its clip interval, is beyond float32 here."""
    trainer = small_trainer(small_config("cpo", 3, minibatches=1, ensemble=EnsembleConfig(clip_centre="old_ratio")))
    collect = trainer.collector.collect

    def unlikely():
        rollout = collect()
        rollout.log_prob[0, trainer.layout.sizes[0]] -= 200.0
        return rollout

    trainer.collector.collect = unlikely
    parts = take_apart(trainer, follower=1)
    assert 1e6 < parts.targets.centre.max() < float("inf")
    parts.data.advantage.flatten()[parts.targets.centre.argmax()] = advantage
    assert_finite(parts)


def test_only_the_total_loss_has_a_gradient() -> None:
    parts = take_apart(small_trainer(small_config("cpo", 3, minibatches=1)))
    update = parts.trainer.update
    (minibatch,) = parts.minibatches()
    batch, loss = update.evaluate(parts.data, update.gather(parts.data, minibatch))
    assert loss.total.requires_grad
    output = batch.output
    others = (*loss.metrics.values(), batch.log_prob, output.mean, output.log_std, output.value, output.state)
    assert not any(x.requires_grad for x in others)
    assert output.mean.equal(parts.data.evaluate(update.gather(parts.data, minibatch), False).output.mean)
