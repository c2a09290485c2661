"""A flock: SAPG's loss on everybody's rows, and a term that holds followers at the distance asked for."""

import math
from dataclasses import replace

import pytest
import torch
from learning.iteration import Parts, small_config, small_trainer, take_apart

from echelon.algorithms.flock import FLOCK, TOLERANCE, distances
from echelon.algorithms.formation import asked_distances, distance_of_clip_fraction
from echelon.config import EnsembleConfig, FormationConfig, TrainConfig
from echelon.errors import UserError
from echelon.training.resolve import resolve


def config(lstm: int = 0, distance: tuple[float, ...] = (), **changes: object) -> TrainConfig:
    small = small_config("flock", 3, lstm, minibatches=1, **changes)
    return replace(small, envs_per_policy=(8, 4, 6), formation=FormationConfig(distance, "kl"))


def parts(lstm: int = 0, distance: tuple[float, ...] = ()) -> Parts:
    return take_apart(small_trainer(config(lstm, distance)), 1)


@pytest.mark.parametrize("lstm", [0, 8])
def test_without_a_distance_it_is_sapg_that_borrows_everything(lstm: int) -> None:
    flock = parts(lstm)
    sapg = replace(flock.trainer.config, algo="sapg", ensemble=EnsembleConfig(borrow_from="all"))
    other = take_apart(small_trainer(sapg), 1).gradients()
    for name, gradient in flock.gradients().items():
        torch.testing.assert_close(gradient, other[name], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("lstm", [0, 8])
def test_distances_are_those_of_the_means_on_own_rows(lstm: int) -> None:
    """Every follower's rows of the minibatch, one at a time, under itself and under the leader."""
    taken = parts(lstm, (0.1,))
    batch = taken.batch()
    units, length = taken.trainer.plan.blocks.units, batch.log_prob.shape[0]
    sigma = taken.trainer.model.log_std[0].exp()
    expected = []
    for follower in (1, 2):
        own = sum(units[:follower])
        lent = sum(units) + sum(units[1:follower])
        terms = [
            ((batch.output.mean[t, 0, own + i] - batch.output.mean[t, 0, lent + i]) / sigma).square().sum() / 2
            for t in range(length)
            for i in range(units[follower])
        ]
        expected.append(torch.stack(terms).mean().item())
    assert distances(batch)[0][0].tolist() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("factor", [0.5, 1.0, 2.0])
def test_the_term_pulls_pushes_or_leaves_alone(factor: float) -> None:
    """Asked for `factor` times where they stand: the loss' slope along d is c·(±(ln 2 - 0.1))/d, or nothing."""
    free = parts(distance=(0.1,))
    now = distances(free.batch())[0][0].detach()
    asked = take_apart(small_trainer(config(distance=tuple((now * factor).tolist()))), 1)
    batch = asked.batch()
    loss = FLOCK.actor_loss(batch, asked.trainer.config)
    rows = torch.tensor([12.0 * 4, 12.0 * 6])
    off = {0.5: math.log(2) - TOLERANCE, 1.0: 0.0, 2.0: TOLERANCE - math.log(2)}[factor]
    assert loss.terms["formation"].item() == pytest.approx(0.2 * off * rows.sum().item(), rel=1e-5, abs=1e-4)
    assert loss.metrics["distance/error"].item() == pytest.approx(abs(math.log(factor)), abs=1e-5)
    if factor == 1.0:
        return
    found, _ = distances(batch)
    slopes = torch.autograd.grad(loss.terms["formation"].sum(), batch.output.mean, retain_graph=True)[0]
    expected = torch.autograd.grad((0.2 * off * rows / now * found[0]).sum(), batch.output.mean)[0]
    torch.testing.assert_close(slopes, expected, rtol=1e-4, atol=1e-6)
    assert not slopes[:, :, sum(asked.trainer.plan.blocks.units) :].any()  # the leader does not come to meet them


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_without_the_push_only_those_who_are_too_far_are_moved(factor: float) -> None:
    """At twice or half the distance that is allowed: pulled by c·(ln 2 - 0.1) a row, or left alone."""
    taken = parts(distance=(0.1,))
    now = distances(taken.batch())[0][0].detach()
    taken.trainer.settings.vectors["distance"][1:] = now * factor
    formation = replace(taken.trainer.config.formation, push=False)
    loss = FLOCK.actor_loss(taken.batch(), replace(taken.trainer.config, formation=formation))
    off = math.log(2) if factor == 0.5 else 0.0
    rows = 12 * (4 + 6)
    assert loss.metrics["distance/error"].item() == pytest.approx(off, abs=1e-5)
    assert loss.terms["formation"].item() == pytest.approx(0.2 * rows * max(0.0, off - TOLERANCE), rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_what_is_out_of_the_actions_range_is_pulled_but_not_pushed(factor: float) -> None:
    """The first action's means are near 5. Too near, only the others are pushed; too far, all are pulled."""
    taken = parts(distance=(0.1,))
    model, settings = taken.trainer.model, taken.trainer.settings
    model.mean_head.bias.data[0, 0] += 5.0
    now = distances(taken.batch())[0][0].detach()
    settings.vectors["distance"][1:] = now * factor
    batch = taken.batch()
    loss = FLOCK.actor_loss(batch, taken.trainer.config)
    slopes = torch.autograd.grad(loss.terms["formation"].sum(), batch.output.mean)[0]
    units = taken.trainer.plan.blocks.units
    followers = slopes[:, 0, units[0] : sum(units)]
    assert followers[..., 1:].all()
    assert followers[..., 0].any() == (factor < 1)


def test_the_distance_is_kept() -> None:
    """From wherever they start, policies of a small environment are where they were asked to be, and stay there."""
    update = replace(config().update, minibatches=8, mini_epochs=5, learning_rate=1e-3, rate_schedule="fixed")
    asked = replace(config(distance=(0.05, 0.2)), num_envs=360, envs_per_policy=(120, 120, 120), update=update)
    trainer = small_trainer(asked)
    for _ in range(35):
        trainer.iterate()
    errors = [trainer.iterate().metrics["distance/error"] for _ in range(20)]
    assert sum(error < 0.2 for error in errors) >= 16, errors


def test_units_of_a_distance() -> None:
    """ESS = exp(-2d), and a clip fraction as it is drawn: ln r is N(-d, 2d)."""
    assert distance_of_clip_fraction(0.5, 0.1) == pytest.approx(0.011, abs=2e-4)
    draws = 0.04**0.5 * torch.randn(200_000, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) - 0.02
    outside = (draws.exp() - 1).abs().gt(0.15).double().mean().item()
    assert distance_of_clip_fraction(outside, 0.15) == pytest.approx(0.02, rel=0.02)
    assert asked_distances(FormationConfig((0.85,)), 3, 0.2) == pytest.approx([-math.log(0.85) / 2] * 3)
    assert asked_distances(FormationConfig((0.01, 0.09), "kl"), 3, 0.2) == pytest.approx([0.01, 0.03, 0.09])
    assert asked_distances(FormationConfig((0.3, 0.1, 0.2), "kl"), 3, 0.2) == [0.3, 0.1, 0.2]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"formation": FormationConfig((0.9, 0.8, 0.7))}, "takes 1, 2 or 5 numbers for 5 followers"),
        ({"formation": FormationConfig((1.5,))}, "--formation.distance must be above 0 and below 1, not 1.5"),
        ({"formation": FormationConfig(push=False)}, "--formation.no-push is about a distance; ask for one by"),
        ({"formation": FormationConfig((0.9,)), "algo": "cpo"}, "is for a flock, not for cpo; choose --algo flock"),
    ],
)
def test_what_cannot_be_is_one_sentence(changes: dict[str, object], sentence: str) -> None:
    with pytest.raises(UserError) as caught:
        resolve(replace(TrainConfig(algo="flock", num_envs=96), **changes))
    assert sentence in str(caught.value)


def test_sigma_ends_where_it_is_told_to() -> None:
    """An entropy bonus raises every sigma, without a bound beyond it."""
    bonus = replace(config().update, entropy_coef=1.0, learning_rate=0.05, rate_schedule="fixed")
    for bound in (1.5, None):
        model = replace(config().model, max_sigma=bound)
        trainer = small_trainer(replace(config(), update=bonus, model=model))
        for _ in range(20):
            trainer.iterate()
        assert (trainer.model.log_std.exp().max().item() > 1.51) == (bound is None)
        if bound is not None:
            assert trainer.model.log_std.exp().max().item() == pytest.approx(bound)


@pytest.mark.parametrize("kind", ["ess", "unclipped"])
def test_rows_weigh_what_they_are_worth(kind: str) -> None:
    """By ratios of every follower's rows under the leader, counted out; on average 1, and own rows as they were."""
    ensemble = EnsembleConfig(borrow_worth=kind)
    taken = take_apart(small_trainer(config(ensemble=ensemble)), 1)
    plan, batch = taken.trainer.plan, taken.batch()
    ratio = batch.log_ratio.detach().exp()[0, 0].double()
    sizes = plan.blocks.sizes
    worth = []
    for rows in ratio[plan.columns["leader_borrows"]].split(sizes):
        n, total, squares = len(rows), sum(rows.tolist()), sum(x * x for x in rows.tolist())
        inside = sum(abs(x - 1) <= 0.2 for x in rows.tolist()) / n
        worth.append(total**2 / (n * squares) if kind == "ess" else inside)
    plain = take_apart(small_trainer(config()), 1).batch().advantage
    weight = [w / (sum(worth) / 2) for w in worth]
    factors = [1.0] * plan.blocks.own + [weight[0]] * sizes[0] + [weight[1]] * sizes[1]
    torch.testing.assert_close(batch.advantage[0, 0], plain[0, 0] * torch.tensor(factors), rtol=1e-4, atol=1e-5)
    assert weight[0] != pytest.approx(1.0, abs=1e-3)


def test_one_policy_flies_alone() -> None:
    trainer = small_trainer(replace(config(), policies=1, envs_per_policy=()))
    assert "distance/error" not in trainer.iterate().metrics
