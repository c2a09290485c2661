"""A member whose network is not finite is the worst, is replaced at once, and never leads or donates."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
from algorithms.test_population import ENVS, LIVELY, STEPS, STILL, population, run_config, selection
from rollout.stub_env import DriftEnv
from torch import Tensor

from echelon.algorithms import PbtConfig
from echelon.algorithms.pbt import BROKEN, Evolution
from echelon.envs.contract import Step
from echelon.errors import UserError
from echelon.runs.metrics import GENEALOGY, read_lines
from echelon.training.loop import train
from echelon.training.trainer import Trainer


class CostlyEnv(DriftEnv):
    """Every reward is negative, and what no number moves earns 0, as a quarantined simulation does."""

    def step(self, action: Tensor) -> Step:
        broken = ~action.isfinite().all(1)
        step = super().step(action.nan_to_num())
        step.reward = (step.reward - 100.0).masked_fill(broken, 0.0)
        return step


def spoil(trainer: Trainer, *members: int) -> None:
    for member in members:
        for weights in trainer.model.parameters():
            weights.data[member] = math.nan


def test_a_member_of_nan_does_not_become_the_donor_where_returns_are_negative() -> None:
    """Its return of 0 would be the highest. It leads nobody, and after one iteration it is a copy of a healthy one."""
    one = population(4, replace(LIVELY, interval=STEPS, initial_delay=0, wait=0), env=CostlyEnv(4 * ENVS))
    for _ in range(6):
        one.iterate()
    spoil(one, 2)
    (taken, *_) = one.iterate().takeovers
    assert (taken.member, taken.copied) == (2, True)
    assert taken.donor != 2
    assert taken.source == taken.donor
    for _ in range(10):
        result = one.iterate()
        assert one.update.finite().all()
        assert all(t.donor_objective < -1.0 for t in result.takeovers)


def test_statistics_and_moments_count_as_well() -> None:
    one = population(3, STILL)
    one.iterate()
    one.model.obs_norm["policy"].mean[0, 1] = math.inf
    one.update.optimizer.square[1, 0] = math.nan
    assert one.update.finite().tolist() == [False, False, True]


def test_when_no_member_is_finite_the_run_stops() -> None:
    one = population(3, STILL, env=CostlyEnv(3 * ENVS))
    one.iterate()
    spoil(one, 0, 1, 2)
    with pytest.raises(FloatingPointError, match="no member of the population is finite"):
        one.iterate()


def test_an_infinite_objective_is_an_unknown_one() -> None:
    """One infinite reward makes nobody the best."""
    one = population(3, STILL)
    one.iterate()
    one.iterate()
    one.collector.episodes.finished.fill_(True)
    one.collector.episodes.last[0, ENVS] = math.inf
    metrics = selection(one).metrics()
    assert math.isnan(metrics["objective/policy_1"])
    assert metrics["pbt/best"] != 1


def test_a_copy_rests_like_any_other_that_was_replaced() -> None:
    evolution = Evolution(3, PbtConfig(mutation_probability=0.0), seed=0)
    (taken,) = evolution.replace_broken(700, [1.0, BROKEN, 2.0], [{"clip": 0.1}, {"clip": 0.2}, {"clip": 0.3}])
    assert (taken.member, taken.donor, taken.before, taken.after) == (1, 2, {"clip": 0.2}, {"clip": 0.3})
    assert evolution.left_alone_since == [0, 700, 0]


class PoisonEnv(DriftEnv):
    """One reward of one environment is not a number, now and then."""

    steps = 0

    def step(self, action: Tensor) -> Step:
        step = super().step(action)
        PoisonEnv.steps += 1
        if self.steps in (20, 50):
            step.reward[ENVS] = math.nan  # of member 1
        return step


def test_a_run_tells_of_it_and_goes_on(tmp_path: Path) -> None:
    from training.test_loop import Remember

    PoisonEnv.steps, view = 0, Remember()
    config = replace(run_config(tmp_path / "run", 8), pbt=STILL)
    folder = train(config, view, lambda n, device, seed: PoisonEnv(n, seed=seed, end_rate=0.02))
    lines = [line for line in read_lines(folder.path / GENEALOGY) if "donor" in line]
    assert [(line["iteration"], line["member"], line["objective"]) for line in lines] == [(2, 1, None), (5, 1, None)]
    assert [text for text in view.said if "member" in text] == [
        "WARNING: after iteration 2, member 1 was not finite and was replaced by a copy of member "
        f"{lines[0]['donor']}; the cause is a reward or an observation that is not finite, or a learning rate too high"
    ]  # and no second time within 50 iterations


def test_a_run_of_which_nobody_is_left_stops_in_one_sentence(tmp_path: Path) -> None:
    class Nothing(DriftEnv):
        def step(self, action: Tensor) -> Step:
            step = super().step(action)
            step.reward.fill_(math.nan)
            return step

    with pytest.raises(UserError, match=r"reward is nan in environment 0, seen in iteration 1: no member of the popul"):
        train(run_config(tmp_path / "run", 8), make_env=lambda n, device, seed: Nothing(n, seed))
