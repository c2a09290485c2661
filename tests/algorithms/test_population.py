"""Whole runs of PBT: takeovers do what they say, a population resumes to the bit, and a member whose network is
not finite is the worst, is replaced at once, and never leads or donates."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from learning.iteration import small_config
from rollout.stub_env import DriftEnv
from tiny import differing, disturbed
from torch import Tensor
from training.test_loop import Remember
from training.test_trainer import check_resume

from echelon.algorithms import PbtConfig
from echelon.algorithms.algorithm import Takeover
from echelon.algorithms.pbt import Population
from echelon.config import TrainConfig
from echelon.envs.contract import Step
from echelon.errors import UserError
from echelon.evaluation.evaluate import evaluate
from echelon.runs.metrics import GENEALOGY, read_lines, read_metrics
from echelon.training.loop import train
from echelon.training.trainer import Trainer

ENVS = 6
STEPS = 12 * ENVS
"""Environment steps of a member in an iteration."""
STILL = PbtConfig(mutation_probability=0.0)
"""Nothing ever changes."""
LIVELY = PbtConfig(interval=2 * STEPS, initial_delay=4 * STEPS, wait=2 * STEPS, mutation_probability=0.5)


def population(members: int, pbt: PbtConfig, lstm: int = 0, env: Any = None, **update: object) -> Trainer:
    config = replace(small_config("pbt", members, lstm, num_envs=ENVS * members, **update), pbt=pbt)
    return Trainer(env or DriftEnv(config.num_envs, end_rate=0.02), config)


def selection(trainer: Trainer) -> Population:
    assert isinstance(trainer.selection, Population)
    return trainer.selection


@pytest.mark.parametrize("lstm", [0, 8])
def test_resuming_continues_as_if_never_stopped(lstm: int, tmp_path: Path) -> None:
    """Takeovers and mutations included, on both sides of the checkpoint."""
    results = check_resume(lambda: population(3, LIVELY, lstm), tmp_path, iterations=11, saved=6)
    copied = [any(t.copied for t in result.takeovers) for result in results]
    assert any(copied[:6])
    assert any(copied[6:])


def test_a_member_that_does_not_learn_is_replaced_and_the_best_one_never() -> None:
    """Member 1 has a learning rate of zero, and the KL rule cannot move it from there. Whoever is best keeps weights
    and hyperparameters through every check."""
    pbt = PbtConfig(interval=2 * STEPS, initial_delay=8 * STEPS, wait=0, mutate_at_start=False, threshold_std=0.1)
    one = population(4, pbt)
    selection(one).write([{}, {"learning_rate": 0.0}, {}, {}])
    optimizer, replaced = one.update.optimizer, False
    frozen = optimizer.flat[1].clone()
    for _ in range(40):
        assert replaced or (optimizer.flat[1].equal(frozen) and optimizer.rate[1] == 0.0)
        taken = {t.member: t for t in one.iterate().takeovers}
        assert selection(one).leader not in taken
        if 1 in taken and taken[1].copied and not replaced:
            replaced = True
            assert optimizer.flat[1].equal(optimizer.flat[taken[1].donor])
            assert taken[1].before["learning_rate"] == 0.0
            assert one.iteration >= 8
    assert replaced
    assert not optimizer.flat[1].equal(frozen)


def _take(member: int, donor: int, **after: float) -> Takeover:
    return Takeover(member, donor, True, donor, 0.0, 1.0, {}, after)


def test_a_takeover_in_place() -> None:
    """Weights, statistics, moments and steps are the donor's, the rate is not; memory is cleared, the environment
    continues, and the episode in progress does not count."""
    one = population(3, STILL, 8)
    selection(one).write([{}, {"mini_epochs": 1.0}, {}])
    for _ in range(2):
        one.iterate()
    optimizer, rollout, episodes = one.update.optimizer, one.collector.rollout, one.collector.episodes
    assert optimizer.steps[1] < optimizer.steps[2]
    storage, x = optimizer.flat.data_ptr(), one.env.x.clone()
    obs, rate = rollout.obs["policy"][-1].clone(), optimizer.rate[1].clone()
    bystander = rollout.state[-1, :ENVS].clone()
    assert rollout.state[-1, ENVS : 2 * ENVS].abs().sum() > 0
    assert episodes.finished.all()
    donor = {name: x[2].clone() for name, x in one.model.state_dict().items()}
    selection(one).apply(_take(1, 2, clip=0.3))
    for index in (1, 2):
        assert not differing({name: x[index] for name, x in one.model.state_dict().items()}, donor)
    assert all(moments[1].equal(moments[2]) for moments in (optimizer.mean, optimizer.square, optimizer.steps))
    assert not optimizer.mean[0].equal(optimizer.mean[2])
    assert optimizer.rate[1].equal(rate)
    assert [row["clip"] for row in selection(one).start()] == [0.2, 0.3, 0.2]
    assert optimizer.flat.data_ptr() == storage
    assert one.env.x.equal(x)
    assert rollout.obs["policy"][-1].equal(obs)
    assert rollout.state[-1, ENVS : 2 * ENVS].abs().sum() == 0
    assert rollout.start[-1, ENVS : 2 * ENVS].all()
    assert rollout.state[-1, :ENVS].equal(bystander)
    scores = episodes.last.view(-1, 3, ENVS)
    assert scores[:, 1].equal(scores[:, 2])
    assert not scores[:, 0].equal(scores[:, 2])
    assert episodes.mixed.tolist() == [False] * ENVS + [True] * ENVS + [False] * ENVS
    # A member that keeps its weights changes its hyperparameters only.
    before, state = {name: x.clone() for name, x in one.model.state_dict().items()}, one.collector.state_dict()
    selection(one).apply(replace(_take(1, 2, discount=0.97), copied=False, source=1))
    assert not differing(one.model.state_dict(), before)
    assert not differing(one.collector.state_dict(), state)
    assert [row["discount"] for row in selection(one).start()] == [0.99, 0.97, 0.99]


def test_passes_follow_the_most_diligent_member_and_another_number_is_another_graph() -> None:
    one = population(2, STILL)
    assert one.update.passes == 2
    for wanted, rows in ((4, [{}, {"mini_epochs": 4.0}]), (3, [{"mini_epochs": 3.0}, {"mini_epochs": 1.0}])):
        learn = one._learn
        selection(one).write(rows)
        assert one.update.passes == wanted
        one.iterate()
        assert one._learn is not learn  # recorded again
    learn = one._learn
    selection(one).write([{"mini_epochs": 2.0}, {"mini_epochs": 3.0}])
    one.iterate()
    assert one._learn is learn
    other = population(2, STILL)
    other.load_state_dict(one.state_dict())
    assert other.update.passes == 3


def test_the_leader_is_the_best_member() -> None:
    """Objectives and who leads are computed here from the scores of single environments."""
    one = population(3, STILL)
    leaders = set()
    highest = [-math.inf] * 3
    for _ in range(8):
        metrics = one.iterate().metrics
        now = [metrics[f"objective/policy_{i}"] for i in range(3)]
        highest = [old if math.isnan(new) else max(old, new) for old, new in zip(highest, now, strict=True)]
        assert selection(one).evolution.best_lately == highest
        episodes = one.collector.episodes
        returns = episodes.last[0].view(3, ENVS)
        known = episodes.finished.view(3, ENVS).all(1)
        expected = [returns[i].double().mean().item() if known[i] else math.nan for i in range(3)]
        for i in range(3):
            assert metrics[f"objective/policy_{i}"] == pytest.approx(expected[i], rel=1e-5, nan_ok=True)
        if known.all():
            best = max(range(3), key=expected.__getitem__)
            leaders.add(best)
            assert metrics["pbt/best"] == selection(one).leader == best
            # Checkpoints are ranked by the objective, not by a return whose scale mutates.
            assert selection(one).score(metrics | {"return/leader": 1e9}) == metrics[f"objective/policy_{best}"]
            assert metrics["return/leader"] == metrics[f"return/policy_{best}"]
            assert metrics["successes/leader"] == metrics[f"successes/policy_{best}"]
            assert metrics["env/height"] == pytest.approx(
                episodes.sums[0].view(3, ENVS)[best].mean().item() / 12, rel=1e-5
            )
            assert metrics["lr"] == metrics[f"pbt/learning_rate/policy_{best}"]
    assert len(leaders) > 1


def bonus_env() -> Any:
    """Pays a bonus that may differ between members, and is judged by something else."""
    env, bonus = DriftEnv(2 * ENVS), torch.full((2 * ENVS,), 2.0)
    vars(env).update(objective="successes", reward_scales={"bonus": bonus})
    return disturbed(env, lambda n, step: replace(step, reward=step.reward + bonus))


def test_a_tasks_reward_scales_mutate_and_its_objective_decides() -> None:
    env = bonus_env()
    one = population(2, replace(STILL, mutation_probability=1.0, mutable=()), env=env)
    rows = selection(one).start()
    assert [set(row) for row in rows] == [{"env.bonus"}] * 2
    low, high = (row["env.bonus"] for row in rows)
    assert low != high
    assert all(2 / 1.5 <= x <= 3 and x != 2 for x in (low, high))
    assert env.reward_scales["bonus"].tolist() == pytest.approx([low] * ENVS + [high] * ENVS)
    for _ in range(4):
        metrics = one.iterate().metrics
    for i in range(2):
        assert metrics[f"objective/policy_{i}"] == metrics[f"successes/policy_{i}"]
    # Pushed into a fresh environment when a run is resumed.
    other_env = bonus_env()
    other = population(2, replace(STILL, mutation_probability=1.0, mutable=()), env=other_env)
    selection(other).write([{"env.bonus": 9.0}] * 2)
    other.load_state_dict(one.state_dict())
    assert other_env.reward_scales["bonus"].equal(env.reward_scales["bonus"])
    # The factor on all of the reward is the collector's; returns are without it.
    one = population(2, replace(STILL, mutation_probability=1.0, mutable=("reward_scale",)), reward_scale=0.5)
    scales = torch.tensor([row["reward_scale"] for row in selection(one).start()]).repeat_interleave(ENVS)
    plain = population(2, STILL, reward_scale=0.5)
    first, same = one.collector, plain.collector
    for each in (first, same):
        each.reset()
        each.collect()
    torch.testing.assert_close(first.rollout.reward, same.rollout.reward / 0.5 * scales.float())
    assert first.episodes.current.equal(same.episodes.current)
    assert len(set(scales.tolist())) == 2
    env.objective = "sucesses"
    with pytest.raises(UserError, match="reports no episode/sucesses"):
        population(2, STILL, env=env).iterate()


def make_env(num_envs: int, device: torch.device, seed: int) -> DriftEnv:
    return DriftEnv(num_envs, seed=seed, end_rate=0.02)


def run_config(out: Path, iterations: int) -> TrainConfig:
    config = small_config("pbt", 3, num_envs=3 * ENVS)
    return replace(config, task="Drift", pbt=LIVELY, out=str(out), iterations=iterations, checkpoint_every=5)


def test_a_run_keeps_its_genealogy_and_evaluates_every_member(tmp_path: Path) -> None:
    whole = train(run_config(tmp_path / "whole", 12), make_env=make_env)
    lines = read_lines(whole.path / GENEALOGY)
    begun, takeovers = lines[:3], lines[3:]
    assert [(line["iteration"], line["member"]) for line in begun] == [(0, 0), (0, 1), (0, 2)]
    assert takeovers
    current = {line["member"]: line["after"] for line in begun}
    metrics = {int(line["iteration"]): line for line in read_metrics(whole)}
    for line in takeovers:
        assert line["env_steps"] == line["iteration"] * 3 * STEPS
        assert line["objective"] == metrics[line["iteration"]][f"objective/policy_{line['member']}"]
        now, then = line["before"], current[line["member"]]
        assert now | {"learning_rate": 0.0} == then | {"learning_rate": 0.0}  # which the KL rule moves too
        current[line["member"]] = line["after"]
    last = metrics[12]
    for member, values in current.items():
        for name in ("clip", "discount", "mini_epochs"):
            if max(line["iteration"] for line in takeovers) < 12:
                assert last[f"pbt/{name}/policy_{member}"] == pytest.approx(values[name], rel=1e-6)
    evaluation = evaluate(whole, num_envs=4, make_env=make_env)
    assert len(evaluation.scores) == 6
    assert evaluation.leader == int(last["pbt/best"])
    # Stopped after an iteration that is not saved, and resumed: nothing is told twice.
    train(run_config(tmp_path / "parts", 7), make_env=make_env)
    parts = train(run_config(tmp_path / "parts", 12), make_env=make_env, change=True)  # as with --resume
    changed = replace(parts.config, update=replace(parts.config.update, clip=0.3))
    with pytest.raises(UserError, match=r"clip cannot be changed in .*: the members of a population have values of"):
        train(changed, make_env=make_env, change=True)
    assert read_lines(parts.path / GENEALOGY) == lines


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


def test_a_member_that_is_not_finite_never_leads_and_when_none_is_finite_the_run_stops() -> None:
    """Its return of 0 would be the highest. It never leads, and after one iteration it is a copy of a healthy one."""
    one = population(4, replace(LIVELY, interval=STEPS, initial_delay=0, wait=0), env=CostlyEnv(4 * ENVS))
    for _ in range(6):
        one.iterate()
    spoil(one, 2)
    (taken, *_) = one.iterate().takeovers
    assert (taken.member, taken.copied, taken.source) == (2, True, taken.donor)
    assert taken.donor != 2
    for _ in range(10):
        result = one.iterate()
        assert one.update.finite().all()
        assert all(t.donor_objective < -1.0 for t in result.takeovers)
    # One infinite reward makes no member the best: its objective is unknown.
    one = population(3, STILL, env=CostlyEnv(3 * ENVS))
    one.iterate()
    one.collector.episodes.finished.fill_(True)
    one.collector.episodes.last[0, ENVS] = math.inf
    metrics = selection(one).metrics()
    assert math.isnan(metrics["objective/policy_1"])
    assert metrics["pbt/best"] != 1
    one.model.obs_norm["policy"].mean[0, 1] = math.inf
    one.update.optimizer.square[1, 0] = math.nan
    assert one.update.finite().tolist() == [False, False, True]
    spoil(one, 0, 1, 2)
    with pytest.raises(FloatingPointError, match="no member of the population is finite"):
        one.iterate()


def test_a_run_tells_of_it_and_goes_on(tmp_path: Path) -> None:
    """One reward of an environment of member 1 is not a number, now and then."""

    def poison(n: int, step: Step) -> None:
        if n in (20, 50):
            step.reward[ENVS] = math.nan

    config, view = replace(run_config(tmp_path / "run", 8), pbt=STILL), Remember()
    folder = train(config, view, lambda *given: disturbed(make_env(*given), poison))
    lines = [line for line in read_lines(folder.path / GENEALOGY) if "donor" in line]
    assert [(line["iteration"], line["member"], line["objective"]) for line in lines] == [(2, 1, None), (5, 1, None)]
    assert [text for text in view.said if "member" in text] == [
        "WARNING: after iteration 2, member 1 was not finite and was replaced by a copy of member "
        f"{lines[0]['donor']}; the cause is a reward or an observation that is not finite, or a learning rate too high"
    ]  # and no second time within 50 iterations
    # Without a sound member it stops in one sentence.
    config = replace(config, out=str(tmp_path / "spoiled"))

    def spoil_all(n: int, step: Step) -> None:
        step.reward.fill_(math.nan)

    with pytest.raises(UserError, match=r"reward is nan in environment 0, seen in iteration 1: no member of the popul"):
        train(config, view, lambda *given: disturbed(make_env(*given), spoil_all))
