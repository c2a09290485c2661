"""The library against the float64 oracle: plan, targets, losses, gradients and whole updates, to 1e-10.

The oracle (tests/oracle) is written from the fact sheet in plain loops over rows and shares no code with the library.
"""

import oracle
import pytest
import torch
from learning.bridge import Bridge, oracle_names, write_params
from learning.iteration import prepare

TOLERANCE = {"rtol": 1e-10, "atol": 1e-10}

# Blocks per policy, leader first; the leader's may be larger, as Layout makes it. LSTM cases unroll 2 chunks of 3.
MLP = [(1, [4]), (2, [4, 4]), (3, [4, 2, 2]), (6, [4, 2, 2, 2, 2, 2])]
LSTM = [(1, [2]), (2, [2, 2]), (3, [4, 2, 2]), (6, [2] * 6)]
CASES = [("ppo", 1, [4], 0), ("ppo", 1, [2], 3)]
CASES += [(algo, m, blocks, 0) for algo in ("sapg", "cpo") for m, blocks in MLP[1:]]
CASES += [(algo, m, blocks, 3) for algo in ("sapg", "cpo") for m, blocks in LSTM[1:]]

PPO = [
    *({"advantage_scope": scope} for scope in ("group", "policy", "centred")),
    {"loss_scale": 12 / 7, "own_weight": 0.7, "borrow_weight": 1.3},
    {"entropy_coef": 0.02, "entropy_scale": 0.1, "bounds_coef": 0.5},
]
SAPG = [*PPO, {"estimator": "vtrace"}, {"estimator": "gae"}, {"clip_centre": "old_ratio"}]
CPO = [*SAPG, {"pull_normalise": True}, {"use_advantage": False}]
CPO += [{"reverse_temperature": 0.3}, {"temperature": 0.05, "cap": 3.0}]
OPTIONS = {"ppo": PPO, "sapg": SAPG, "cpo": CPO}
"""What changes an algorithm's loss."""


def problem(algo, policies, blocks, lstm, seed=0, **settings):
    horizon, sequence = (6, 3) if lstm else (4, 1)
    settings = {"beta": 0.4, "entropy_scale": 0.05, "bounds_coef": 0.1, "follower": policies - 1 or 1} | settings
    return oracle.random_problem(seed, policies, blocks, horizon, sequence, lstm, algo=algo, **settings)


def case_id(case):
    return "-".join(str(part) for part in case)


def close(actual, expected):
    torch.testing.assert_close(actual, expected, **TOLERANCE)


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_plan_lists_the_oracles_evaluations(case):
    bridge = Bridge(problem(*case))
    ours = [evaluation for line in bridge.evaluations() for evaluation in line]
    theirs = oracle.plan(bridge.problem)
    assert len(ours) == len(set(ours)) == len(theirs)
    assert set(ours) == set(theirs)


@pytest.mark.parametrize("option", [{}, {"estimator": "vtrace"}, {"estimator": "gae"}], ids=str)
@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_targets(case, option):
    bridge = Bridge(problem(*case, value_gain=3.0, **option))
    targets, expected = bridge.targets(), oracle.targets(bridge.problem)
    for name in ("advantage", "returns", "value"):
        close(getattr(targets, name), bridge.table({e: float(getattr(t, name)) for e, t in expected.items()}))


# Policies with clip ranges and numbers of environments of their own; the leader borrows from all followers.
UNLIKE = {"clips": (0.1, 0.3, 0.05, 0.2), "borrows_all": True}
MINIBATCHES = [(case, option) for case in CASES if case[1] in (1, 3) for option in ({}, *OPTIONS[case[0]])]
MINIBATCHES += [(case, {"seed": 1}) for case in CASES if case[1] in (2, 6)]
MINIBATCHES += [
    ((algo, 4, [6, 2, 4, 8], lstm), UNLIKE | option)
    for algo in ("sapg", "cpo")
    for lstm in (0, 3)
    for option in ({}, {"advantage_scope": "centred"}, {"clip_centre": "old_ratio"})
]


@pytest.mark.parametrize(("case", "option"), MINIBATCHES, ids=str)
def test_loss_and_gradient_of_a_minibatch(case, option):
    """At parameters away from the rollout's, so that ratios and value changes leave the clip range."""
    given = problem(*case, **option)
    bridge = Bridge(given)
    data = prepare(bridge.update, bridge.rollout, bridge.targets(), bridge.follower)
    prepared = oracle.prepare(given)
    for name in ("mean", "var", "count"):
        close(getattr(bridge.model.value_norm, name).item(), float(getattr(prepared, f"value_{name}")))
    for name in ("advantage", "value", "returns"):
        close(getattr(data, name), bridge.table({e: float(x) for e, x in getattr(prepared, name).items()}))
    params = oracle.perturbed(given, seed=7)
    write_params(bridge.model, params)
    minibatch = next(iter(bridge.plan.shuffle(bridge.follower, torch.Generator().manual_seed(3))))
    loss = bridge.update.loss(data.evaluate(data.gather(minibatch), bridge.update.reads_leader))
    loss.total.sum().backward()
    expected = oracle.loss(given, bridge.oracle_minibatch(minibatch), prepared, params)
    close(loss.total[0].detach(), expected.total.detach())
    close(loss.metrics["loss/critic"][0].detach(), expected.critic.detach())
    close(bridge.gradients(), oracle.gradients(expected.total, params))


SCHEDULES = [{}, {"kl_reference": "rollout", "kl_rows": "own"}, {"rate_schedule": "minibatch", "kl_rows": "all"}]


@pytest.mark.parametrize("settings", [*SCHEDULES, {"rate_schedule": "fixed"}], ids=str)
@pytest.mark.parametrize("case", [("ppo", 1, [4], 0), ("sapg", 3, [4, 2, 2], 0), ("cpo", 3, [2, 2, 2], 2)], ids=case_id)
def test_whole_update(case, settings):
    """Three mini-epochs of two minibatches: Adam, gradient clip, sliding KL and learning rate included."""
    check_update(problem(*case), **settings)


def test_a_whole_update_of_policies_that_are_unlike():
    check_update(problem("cpo", 4, [2, 2, 4, 6], 0, **UNLIKE, advantage_scope="centred"))


def check_update(given, **settings):
    hyper = {"learning_rate": 3e-3, "kl_threshold": 4e-4, "grad_norm": 0.5}
    settings = {"rate_schedule": "mini_epoch", "kl_reference": "sliding", "kl_rows": "no_pull"} | settings
    bridge = Bridge(given, mini_epochs=3, **hyper, **settings)
    generator = torch.Generator().manual_seed(5)
    passes = [[bridge.oracle_minibatch(m) for m in bridge.plan.shuffle(bridge.follower, generator)] for _ in range(3)]
    learned = oracle.learn(given, passes, **hyper, **settings)
    metrics = bridge.update.run(bridge.rollout, bridge.targets(), bridge.follower, torch.Generator().manual_seed(5))
    close(metrics["lr"].item(), float(learned.rate))
    ours = oracle_names({name: p.detach() for name, p in bridge.model.named_parameters()})
    close(ours, {name: value.detach() for name, value in learned.params.items()})
