"""The oracle against finite differences, against PyTorch's own parts, and against the sheet's §12 acceptance checks."""

import math
from dataclasses import replace

import pytest
import torch

import oracle
from oracle import Evaluation, Problem, Sequence
from oracle.generate import collect


def same_policies(problem: Problem, seed: int) -> Problem:
    """The same kind of rollout, collected by policies that differ in nothing."""
    with torch.no_grad():
        for name in ("phi", "log_std"):
            problem.params[name][:] = problem.params[name][0].clone()
        generator = torch.Generator().manual_seed(seed)
        for env in range(problem.num_envs):
            collect(problem, env, generator)
    return problem


def test_lstm_is_pytorchs() -> None:
    p = oracle.random_problem(3, policies=2, blocks=(2, 2), horizon=4, sequence=2, lstm=6)
    cell = torch.nn.LSTMCell(5, 6, dtype=torch.float64)
    for ours, theirs in [("w_ih", "weight_ih"), ("w_hh", "weight_hh"), ("b_ih", "bias_ih"), ("b_hh", "bias_hh")]:
        getattr(cell, theirs).data.copy_(p.params[ours].data)
    assert p.state_h is not None
    assert p.state_c is not None
    h, c = p.state_h[2, 3], p.state_c[2, 3]
    x = torch.cat([p.obs[2, 3], p.params["phi"][1]])
    h, c = cell(x, (h, c))
    y = torch.nn.functional.layer_norm(h, (6,), p.params["ln_w"], p.params["ln_b"])
    for layer in range(2):
        y = torch.nn.functional.elu(torch.nn.functional.linear(y, p.params[f"w{layer}"], p.params[f"b{layer}"]))
    mean = torch.nn.functional.linear(y, p.params["w_mu"], p.params["b_mu"])
    torch.testing.assert_close(mean, p.mean[2, 3], rtol=0, atol=1e-13)


@pytest.mark.parametrize("lstm", [0, 5])
def test_vtrace_of_equal_policies_is_gae_with_lambda_one(lstm: int) -> None:
    problem = oracle.random_problem(
        7, 3, (4, 2, 2), horizon=8, sequence=4 if lstm else 1, lstm=lstm, estimator="vtrace", gae_lambda=1.0
    )
    problem = same_policies(problem, seed=7)
    problem.adversarial.zero_()
    target = oracle.targets(problem)
    for e, found in target.items():
        own = target[Evaluation(e.t, e.env, problem.policy_id[e.env], "own")]
        assert found == pytest.approx(own, abs=1e-12)


def test_prepare_normalises_values_after_the_first_merge_and_returns_after_both() -> None:
    problem = oracle.random_problem(1, 3, (4, 2, 2), horizon=4, value_gain=8.0)
    prepared = oracle.prepare(problem)
    target = prepared.target
    first = oracle.merge((0.3, 2.5, 50.0), [t.value for t in target.values()])
    second = oracle.merge(first, [t.returns for t in target.values()])
    assert (prepared.value_mean, prepared.value_var, prepared.value_count) == second
    assert prepared.value_count == 50.0 + 2 * len(oracle.plan(problem))
    for e, t in target.items():
        assert prepared.value[e] == oracle.normalise(t.value, *first[:2])
        assert prepared.returns[e] == oracle.normalise(t.returns, *second[:2])


def test_terminated_and_truncated_at_once_is_terminated() -> None:
    problem = oracle.random_problem(8, 2, (3, 2), horizon=4)
    assert problem.terminated[0, 2]
    assert problem.truncated[0, 2]
    target = oracle.targets(problem)
    for policy, group in [(0, "own"), (1, "follower_pull")]:
        assert target[Evaluation(0, 2, policy, group)].returns == pytest.approx(problem.reward[0, 2].item(), abs=1e-15)


def test_plan_partitions() -> None:
    rows = {"ppo": (64, 0, 0), "sapg": (64, 16, 0), "cpo": (64, 16, 64)}
    for algo, expected in rows.items():
        problem = oracle.random_problem(0, 3, (4, 2, 2), horizon=8, sequence=4, lstm=3, algo=algo, follower=2)
        plan = oracle.plan(problem)
        assert tuple(sum(e.group == group for e in plan) for group in oracle.GROUPS) == expected
        assert len(set(plan)) == len(plan)
        unrolled = [e for s in oracle.sequences(problem) for e in s.evaluations(4)]
        assert sorted(unrolled, key=repr) == sorted(plan, key=repr)
    for e in plan:
        collector = problem.policy_id[e.env]
        if e.group == "own":
            assert e.policy == collector
        if e.group == "leader_borrows":
            assert (collector, e.policy) == (2, 0)
        if e.group == "follower_pull":
            assert collector == 0
            assert e.policy in (1, 2)


@pytest.mark.parametrize(("lstm", "sequence"), [(0, 1), (5, 4), (5, 8)])
def test_ratio_is_one_where_policies_are_equal(lstm: int, sequence: int) -> None:
    """Own rows always; all rows once the policies are the same, also in sequences with episode starts inside."""
    problem = oracle.random_problem(5, 3, (4, 2, 2), horizon=8, sequence=sequence, lstm=lstm)
    assert problem.start[1:].any(dim=0).all()
    parts = oracle.loss(problem, oracle.sequences(problem), oracle.prepare(problem))
    assert all(abs(r - 1.0) < 1e-12 for e, r in parts.ratio.items() if e.group == "own")
    assert any(abs(r - 1.0) > 0.1 for e, r in parts.ratio.items() if e.group == "leader_borrows")
    problem = same_policies(problem, seed=5)
    outputs = oracle.evaluate(problem, oracle.sequences(problem))
    for e, out in outputs.items():
        new = oracle.log_prob(out.mean, out.log_std, problem.action[e.t, e.env])
        assert abs(new.item() - problem.log_prob[e.t, e.env].item()) < 1e-12
    # κ of identical distributions is Σ_d (ln(1 + 1e-5) + σ²/(2(σ² + 1e-5)) - 1/2).
    squares = torch.exp(2.0 * problem.params["log_std"][0]).tolist()
    bias = sum(math.log1p(1e-5) + s / (2 * (s + 1e-5)) - 0.5 for s in squares)
    for kl_rows in ("no_pull", "own", "all"):
        assert oracle.kappa(outputs, oracle.behaviour(problem), kl_rows) == pytest.approx(bias, abs=1e-13)


@pytest.mark.parametrize(
    ("lstm", "settings"),
    [
        (0, {"algo": "ppo", "entropy_coef": 0.01}),
        (0, {"algo": "sapg", "entropy_scale": 0.01, "clip_centre": "old_ratio"}),
        (0, {"algo": "cpo", "beta": 0.1, "bounds_coef": 0.1, "advantage_scope": "policy"}),
        (4, {"algo": "cpo", "beta": 0.1, "estimator": "vtrace", "pull_normalise": True, "loss_scale": 1.5}),
    ],
)
def test_gradients_are_finite_differences(lstm: int, settings: dict[str, object]) -> None:
    policies, blocks = (1, (3,)) if settings["algo"] == "ppo" else (3, (2, 1, 1))
    problem = oracle.random_problem(11, policies, blocks, horizon=4, sequence=2 if lstm else 1, lstm=lstm, **settings)
    prepared = oracle.prepare(problem)
    params = oracle.perturbed(problem, seed=1)
    minibatch = oracle.sequences(problem) if lstm else oracle.plan(problem)
    parts = oracle.loss(problem, minibatch, prepared, params)
    assert any(abs(r - 1.0) > problem.clip for r in parts.ratio.values())
    grads = oracle.gradients(parts.total, params)
    step = 1e-5
    for name, p in params.items():
        for index in {0, p.numel() // 2, p.numel() - 1}:
            ends = []
            for sign in (1.0, -1.0):
                moved = {k: v.detach().clone() for k, v in params.items()}
                moved[name].view(-1)[index] += sign * step
                ends.append(oracle.loss(problem, minibatch, prepared, moved).total.item())
            slope = (ends[0] - ends[1]) / (2 * step)
            assert grads[name].flatten()[index].item() == pytest.approx(slope, rel=1e-6, abs=1e-8), (name, index)


def test_borrowed_rows_reach_only_the_borrowers_parameters() -> None:
    problem = oracle.random_problem(2, 3, (2, 2, 2), horizon=4, sequence=4, lstm=4, beta=1.0, entropy_scale=0.1)
    prepared = oracle.prepare(problem)
    for group, policy in [("leader_borrows", 0), ("follower_pull", 2)]:
        minibatch = [s for s in oracle.sequences(problem) if s.group == group and s.policy == policy]
        grads = oracle.gradients(oracle.loss(problem, minibatch, prepared).total, problem.params)
        for name in ("phi", "log_std"):
            touched = [k for k in range(3) if grads[name][k].abs().max() > 0]
            assert touched == [policy]
        assert (grads["w_v"].abs().max() > 0) == (group == "leader_borrows")


def test_steps_are_pytorchs_adam_and_clip() -> None:
    problem = oracle.random_problem(4, 2, (2, 2), horizon=4, algo="sapg", critic_coef=8.0)
    plan = oracle.plan(problem)
    passes = [[plan[0::2], plan[1::2]]] * 3
    learned = oracle.learn(problem, passes, learning_rate=1e-3, kl_threshold=1.0)
    assert max(learned.norms) > 1.0
    # κ stays below half the large threshold, so every mini-epoch raises the rate.
    assert learned.rates == pytest.approx([1e-3, 1e-3, 1.5e-3, 1.5e-3, 2.25e-3, 2.25e-3])
    params = {name: p.detach().clone().requires_grad_() for name, p in problem.params.items()}
    optimizer = torch.optim.Adam(params.values(), lr=1e-3)
    for index, minibatch in enumerate(m for minibatches in passes for m in minibatches):
        optimizer.param_groups[0]["lr"] = learned.rates[index]
        optimizer.zero_grad()
        oracle.loss(problem, minibatch, learned.prepared, params).total.backward()
        norm = torch.nn.utils.clip_grad_norm_(params.values(), 1.0)
        assert norm.item() == pytest.approx(learned.norms[index], rel=1e-12)
        optimizer.step()
    for name, p in params.items():
        torch.testing.assert_close(learned.params[name], p, rtol=0, atol=1e-13)


def test_sliding_reference_is_the_pass_before() -> None:
    problem = oracle.random_problem(6, 2, (2, 2), horizon=4, sequence=2, lstm=3)
    minibatch = oracle.sequences(problem)
    still = {"learning_rate": 0.0, "rate_schedule": "fixed"}
    sliding = oracle.learn(problem, [[minibatch], [minibatch]], **still).kappas
    fixed = oracle.learn(problem, [[minibatch], [minibatch]], kl_reference="rollout", **still).kappas
    # Nothing moves: against the rollout κ stays KL(leader ‖ follower) on borrowed rows, against the last pass it is 0.
    assert fixed[0] == fixed[1] == sliding[0] > 1e-3
    assert abs(sliding[1]) < 1e-4


def test_lstm_refuses_single_rows() -> None:
    problem = oracle.random_problem(0, 1, (2,), horizon=4, sequence=2, lstm=3, algo="ppo")
    prepared = oracle.prepare(problem)
    with pytest.raises(ValueError, match="sequences"):
        oracle.loss(problem, [Evaluation(0, 0, 0, "own")], prepared)
    with pytest.raises(ValueError, match="twice"):
        oracle.loss(problem, [Sequence(0, 0, 0, "own")] * 2, prepared)


def test_reverse_penalty_unrolls_the_leader_over_the_followers_sequences() -> None:
    """Between equal policies log π_i - log π_leader is 0 on every row, so the penalty only turns the gradient."""
    problem = oracle.random_problem(9, 3, (2, 2, 2), horizon=8, sequence=4, lstm=4, algo="cpo")
    problem = same_policies(problem, seed=9)
    prepared, minibatch = oracle.prepare(problem), oracle.sequences(problem)
    plain = oracle.loss(problem, minibatch, prepared)
    found = oracle.loss(replace(problem, reverse_temperature=0.5), minibatch, prepared)
    assert found.total.item() == pytest.approx(plain.total.item(), abs=1e-13)
    turned = oracle.gradients(found.total, problem.params)["phi"] - oracle.gradients(plain.total, problem.params)["phi"]
    assert turned[0].abs().max() < 1e-15
    assert turned[1:].abs().max() > 1e-4
