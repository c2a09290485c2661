"""The oracle against numbers worked out by hand, on a problem small enough for that.

No hidden layer: with one observation x and one conditioning number φ_k per policy the heads are mean = φ_k and
V_k = x + φ_k, σ = 1, and the value normaliser is the identity. Leader: environment 0, follower: environment 1.
"""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

import oracle
from oracle import Evaluation, Prepared, Problem, Target

HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)
LN2 = math.log(2.0)


def tensor(*rows: list[float]) -> Tensor:
    """[T, N] float64 from one list per environment."""
    return torch.tensor(rows, dtype=torch.float64).T.contiguous()


def leaf(data: object) -> Tensor:
    """A parameter."""
    return torch.tensor(data, dtype=torch.float64, requires_grad=True)


def tiny(follower_phi: float = 1.0, **settings: object) -> Problem:
    """Four steps of two environments; see the module's docstring. γ = τ = 1/2."""
    flags = torch.zeros(4, 2, dtype=torch.bool)
    terminated, truncated = flags.clone(), flags.clone()
    terminated[1, 0] = truncated[3, 0] = truncated[1, 1] = True
    start = torch.zeros(5, 2, dtype=torch.bool)
    start[1:] = terminated | truncated
    # log N(a; 0, 1) - log N(a; 1, 1) = 1/2 - a: the leader's ratio on the follower's rows is 1/2, 1/2, 1/2, 2.
    action = tensor([0.0, 1.0, 0.0, 0.0], [0.5 + LN2, 0.5 + LN2, 0.5 + LN2, 0.5 - LN2])
    mean = tensor([0.0] * 4, [follower_phi] * 4)
    defaults = {
        "value_var": 1.0 - 1e-5,
        "discount": 0.5,
        "gae_lambda": 0.5,
        "reward": tensor([1.0, 2.0, 3.0, 4.0], [1.0] * 4),
        "adversarial": tensor([0.0] * 4, [-0.5] * 4),
        "value": tensor([1.0, 1.0, 2.0, 2.0, 8.0], [1.0, 1.0, 1.0, 1.0, 4.0]),
        "final_value": tensor([99.0, 99.0, 99.0, 6.0], [99.0, 3.0, 99.0, 99.0]),
        "log_prob": -0.5 * (action - mean) ** 2 - HALF_LOG_2PI,
    }
    return Problem(
        policies=2,
        policy_id=[0, 1],
        horizon=4,
        sequence=1,
        params={
            "phi": leaf([[0.0], [follower_phi]]),
            "log_std": leaf([[0.0], [0.0]]),
            "w_mu": leaf([[0.0, 1.0]]),
            "b_mu": leaf([0.0]),
            "w_v": leaf([[1.0, 1.0]]),
            "b_v": leaf([0.0]),
        },
        obs=tensor([0.0, 1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0, 5.0])[..., None],
        action=action[..., None],
        mean=mean[..., None],
        log_std=torch.zeros(4, 2, 1, dtype=torch.float64),
        terminated=terminated,
        truncated=truncated,
        start=start,
        **(defaults | settings),
    )


def path(target: dict[Evaluation, Target], env: int, policy: int, group: str) -> list[Target]:
    """Targets of one environment's rows in time order."""
    return [target[Evaluation(t, env, policy, group)] for t in range(4)]


def prepared_by_hand(rows: dict[Evaluation, tuple[float, float, float]]) -> Prepared:
    """(Â, old value, return) of every row, clipped around 1."""
    advantage = {e: x[0] for e, x in rows.items()}
    value, returns = {e: x[1] for e, x in rows.items()}, {e: x[2] for e, x in rows.items()}
    return Prepared({}, advantage, value, returns, dict.fromkeys(rows, 1.0), 0.0, 1.0, 1.0)


def test_network_by_hand() -> None:
    params = {
        "phi": leaf([[0.5], [-1.0]]),
        "log_std": leaf([[0.1], [0.2]]),
        "w0": leaf([[1.0, 2.0]]),
        "b0": leaf([-0.5]),
        "w_mu": leaf([[2.0]]),
        "b_mu": leaf([0.1]),
        "w_v": leaf([[-1.0]]),
        "b_v": leaf([3.0]),
    }
    x = torch.tensor([2.0], dtype=torch.float64)
    # Policy 0: 2 + 2·0.5 - 0.5 = 2.5 > 0, so mean = 5.1 and V = 0.5.
    out = oracle.network(params, x, 0, None)
    assert [out.mean.item(), out.log_std.item(), out.value.item()] == pytest.approx([5.1, 0.1, 0.5], abs=1e-15)
    # Policy 1: 2 - 2 - 0.5 = -0.5, ELU e^-0.5 - 1 = -0.39346934, mean = 2·that + 0.1, V = 3 - that.
    out = oracle.network(params, x, 1, None)
    assert out.mean.item() == pytest.approx(-0.6869386805747332, abs=1e-15)
    assert out.value.item() == pytest.approx(3.3934693402873666, abs=1e-15)


def test_lstm_by_hand() -> None:
    # Gates come from the biases alone: i = f = o = σ(0) = 1/2 and g = tanh(±ln3/2) = ±1/2. From c = (1, 0):
    # c' = (0.5 + 0.25, -0.25) and h' = tanh(c')/2. LayerNorm of two numbers with half-difference d is ±d/√(d² + 1e-5).
    half_ln3 = 0.5 * math.log(3.0)
    params = {
        "log_std": leaf([[0.0]]),
        "w_ih": leaf([[0.0]] * 8),
        "w_hh": leaf([[0.0, 0.0]] * 8),
        "b_ih": leaf([0.0, 0.0, 0.0, 0.0, half_ln3, 0.0, 0.0, 0.0]),
        "b_hh": leaf([0.0, 0.0, 0.0, 0.0, 0.0, -half_ln3, 0.0, 0.0]),
        "ln_w": leaf([2.0, 1.0]),
        "ln_b": leaf([0.0, 0.5]),
        "w_mu": leaf([[1.0, 0.0]]),
        "b_mu": leaf([0.0]),
        "w_v": leaf([[0.0, 1.0]]),
        "b_v": leaf([0.0]),
    }
    c = torch.tensor([1.0, 0.0], dtype=torch.float64)
    out = oracle.network(params, torch.zeros(1, dtype=torch.float64), 0, (torch.zeros_like(c), c))
    d = 0.25 * (math.tanh(0.75) + math.tanh(0.25))
    assert out.state is not None
    assert out.state[1].tolist() == pytest.approx([0.75, -0.25], abs=1e-15)
    assert out.state[0].tolist() == pytest.approx([0.5 * math.tanh(0.75), -0.5 * math.tanh(0.25)], abs=1e-15)
    assert out.mean.item() == pytest.approx(2.0 * d / math.sqrt(d * d + 1e-5), abs=1e-14)
    assert out.value.item() == pytest.approx(0.5 - d / math.sqrt(d * d + 1e-5), abs=1e-14)


def test_gaussian_by_hand() -> None:
    # Mean 1, σ = 2, action 3: z = 1, log density -1/2 - ln√2π - ln 2; entropy 1/2 + ln√2π + ln 2.
    one, log_std = torch.tensor([1.0], dtype=torch.float64), torch.tensor([LN2], dtype=torch.float64)
    action = torch.tensor([3.0], dtype=torch.float64)
    assert oracle.log_prob(one, log_std, action).item() == pytest.approx(-0.5 - HALF_LOG_2PI - LN2, abs=1e-15)
    assert oracle.entropy(log_std).item() == pytest.approx(0.5 + HALF_LOG_2PI + LN2, abs=1e-15)


def test_own_targets_by_hand() -> None:
    target = oracle.targets(tiny())
    # Environment 0, backwards: t=3 truncated, 4 + 6/2 - 2 = 5. t=2: 3 + 2/2 - 2 = 2, plus 5/4. t=1 terminated:
    # 2 - 1 = 1. t=0: 1 + 1/2 - 1 = 0.5, plus 1/4.
    leader = path(target, 0, 0, "own")
    assert [t.advantage for t in leader] == [0.75, 1.0, 3.25, 5.0]
    assert [t.returns for t in leader] == [1.75, 2.0, 5.25, 7.0]
    # Environment 1 earns 1 - 0.5 per step: t=3: 0.5 + 4/2 - 1 = 1.5. t=2: 0.5 + 0.5 - 1 = 0, plus 1.5/4. t=1
    # truncated: 0.5 + 3/2 - 1 = 1. t=0: 0, plus 1/4.
    assert [t.advantage for t in path(target, 1, 1, "own")] == [0.25, 1.0, 0.375, 1.5]


def test_borrowed_td_targets_by_hand() -> None:
    target = oracle.targets(tiny())
    # Leader on environment 1: V = 1, 2, 3, 4, 5, reward 1 without the adversarial part; t=1 is truncated at value 3.
    borrowed = path(target, 1, 0, "leader_borrows")
    assert [t.value for t in borrowed] == pytest.approx([1.0, 2.0, 3.0, 4.0], abs=1e-14)
    assert [t.returns for t in borrowed] == pytest.approx([2.0, 2.5, 3.0, 3.5], abs=1e-14)
    assert [t.advantage for t in borrowed] == pytest.approx([1.0, 0.5, 0.0, -0.5], abs=1e-14)
    # Follower on environment 0: V = 1, 2, 3, 4; t=1 terminated: 2; t=3 truncated at 6: 4 + 3.
    pulled = path(target, 0, 1, "follower_pull")
    assert [t.returns for t in pulled] == pytest.approx([2.0, 2.0, 5.0, 7.0], abs=1e-14)
    assert [t.advantage for t in pulled] == pytest.approx([1.0, 0.0, 2.0, 3.0], abs=1e-14)


def test_vtrace_by_hand() -> None:
    # Leader on environment 1, V = 1, 2, 3, 4, 5, ratios 1/2, 1/2, 1/2, 2 cut to 1:
    # t=3: v = 4 + (1 + 2.5 - 4) = 3.5, A = -0.5
    # t=2: v = 3 + (1 + 2 - 3)/2 + (3.5 - 4)/4 = 2.875, A = 1 + 1.75 - 3
    # t=1, truncated at 3: v = 2 + (1 + 1.5 - 2)/2 = 2.25, A = 0.5
    # t=0: v = 1 + (1 + 1 - 1)/2 + (2.25 - 2)/4 = 1.5625, A = 1 + 1.125 - 1
    problem = tiny(estimator="vtrace", clip_centre="old_ratio")
    borrowed = path(oracle.targets(problem), 1, 0, "leader_borrows")
    assert [t.returns for t in borrowed] == pytest.approx([1.5625, 2.25, 2.875, 3.5], abs=1e-14)
    assert [t.advantage for t in borrowed] == pytest.approx([1.125, 0.5, -0.25, -0.5], abs=1e-14)
    centre = oracle.clip_centres(problem)
    assert [centre[Evaluation(t, 1, 0, "leader_borrows")] for t in range(4)] == pytest.approx([0.5, 0.5, 0.5, 2.0])
    assert all(c == 1.0 for e, c in centre.items() if e.group != "leader_borrows")


def test_normaliser_merge_by_hand() -> None:
    # (0, 1, 1) meets {1, 3}: mean 2, unbiased variance 2. New mean 2·2/3, squares 1·1 + 2·2 + 2²·1·2/3 = 23/3.
    assert oracle.merge((0.0, 1.0, 1.0), [1.0, 3.0]) == pytest.approx((4 / 3, 23 / 9, 3.0), abs=1e-15)
    assert oracle.normalise(100.0, 0.0, 1.0) == 5.0
    assert oracle.denormalise(-7.0, 1.0, 4.0 - 1e-5) == pytest.approx(-9.0, abs=1e-14)


def test_advantage_scopes_by_hand() -> None:
    keys = [(0, 0, "own"), (1, 1, "own"), (1, 0, "leader_borrows")]
    numbers = [(1.0, 3.0), (5.0, 7.0), (10.0, 12.0)]
    target = {}
    for (env, policy, group), pair in zip(keys, numbers, strict=True):
        for t, a in enumerate(pair):
            target[Evaluation(t, env, policy, group)] = Target(a, 0.0, 0.0)
    # Each pair alone: ±1/√2. The own four: mean 4, squares 9 + 1 + 1 + 9 over 3. All six: mean 38/6, and squares
    # 1 + 9 + 25 + 49 + 100 + 144 - 38²/6 over 5.
    half, own, everything = 1 / math.sqrt(2), math.sqrt(20 / 3), math.sqrt((328 - 38**2 / 6) / 5)
    expected = {
        "policy": [-half, half] * 3,
        "group": [-3 / own, -1 / own, 1 / own, 3 / own, -half, half],
        "global": [(a - 38 / 6) / everything for a in (1, 3, 5, 7, 10, 12)],
    }
    for scope, numbers in expected.items():
        found = oracle.normalised_advantages(tiny(advantage_scope=scope), target)
        assert list(found.values()) == pytest.approx(numbers, abs=1e-7)  # the 1e-8 beside the std


def test_loss_by_hand() -> None:
    """Four rows, one of each kind, with φ = (0, 2): leader's mean 0, follower's mean 2."""
    settings = {"clip": 0.2, "critic_coef": 4.0, "bounds_coef": 0.1, "entropy_coef": 0.1, "entropy_scale": 0.4}
    settings |= {"own_weight": 2.0, "borrow_weight": 3.0, "beta": 0.5, "temperature": 0.2, "loss_scale": 7.0}
    problem = tiny(follower_phi=2.0, **settings)
    leader, follower = Evaluation(0, 0, 0, "own"), Evaluation(0, 1, 1, "own")
    borrow, pull = Evaluation(1, 1, 0, "leader_borrows"), Evaluation(1, 0, 1, "follower_pull")
    for e, ratio in [(leader, 1.5), (follower, 0.5), (borrow, 2.0)]:
        mean = 2.0 * e.policy
        new = -0.5 * (problem.action[e.t, e.env, 0] - mean) ** 2 - HALF_LOG_2PI
        problem.log_prob[e.t, e.env] = new - math.log(ratio)
    problem.log_prob[pull.t, pull.env] = -1e4  # no ratio is formed on a pull row
    prepared = prepared_by_hand(
        {leader: (2.0, 1.0, 2.0), follower: (-1.0, 1.0, 3.0), borrow: (-1.0, 2.1, 0.0), pull: (0.2, 9.0, 9.0)}
    )
    parts = oracle.loss(problem, [leader, follower, borrow, pull], prepared)
    # Surrogates: leader max(-2·1.5, -2·1.2) = -2.4; follower max(0.5, 0.8) = 0.8; borrowed max(2, 1.2) = 2.
    assert parts.surrogate["own"].item() == pytest.approx((-2.4 + 0.8) / 4, abs=1e-14)
    assert parts.surrogate["leader_borrows"].item() == pytest.approx(2.0 / 4, abs=1e-14)
    # Pull: w = e^(0.2/0.2), the action 1 is 1 away from the follower's mean 2: neglogp = 1/2 + ln√2π.
    assert parts.weight == {pull: pytest.approx(math.e, abs=1e-14)}
    pulled = math.e * (0.5 + HALF_LOG_2PI) / 4
    assert parts.surrogate["follower_pull"].item() == pytest.approx(pulled, abs=1e-14)
    # Critic: leader V = 0, old 1, so V_c = 0.8, G = 2: max(4, 1.44). Follower V = 1 + 2 = 3, V_c = 1.2, G = 3:
    # max(0, 3.24). Borrowed V = 2 within 0.2 of 2.1, G = 0: 4.
    assert parts.critic.item() == pytest.approx((4.0 + 3.24 + 4.0) / 4, abs=1e-14)
    # Bounds: only the follower's mean is beyond 1.1, by 0.9. Entropy: η = 0.1 for the leader twice, 0.1 + 0.4/2 once.
    assert parts.bounds.item() == pytest.approx(0.81 / 4, abs=1e-14)
    bonus = (0.1 + 0.3 + 0.1) * (0.5 + HALF_LOG_2PI) / 4
    assert parts.entropy.item() == pytest.approx(bonus, abs=1e-14)
    actor = 2.0 * -0.4 + 3.0 * 0.5 + 0.5 * pulled
    assert parts.actor.item() == pytest.approx(actor, abs=1e-14)
    assert parts.total.item() == pytest.approx(7.0 * (actor + 2.0 * 2.81 - bonus + 0.1 * 0.2025), abs=1e-13)
    assert parts.ratio == pytest.approx({leader: 1.5, follower: 0.5, borrow: 2.0}, abs=1e-14)
    # With the interval around 2, borrowed ratio 2 is inside 1.6 .. 2.4; around 4 it is below 3.2, and -Â·3.2 is larger.
    for centre, expected in [(2.0, 2.0), (4.0, 3.2)]:
        prepared.centre[borrow] = centre
        found = oracle.loss(problem, [borrow], prepared).surrogate["leader_borrows"].item()
        assert found == pytest.approx(expected, abs=1e-14)


def test_pull_weights_by_hand() -> None:
    pulls = [Evaluation(t, 0, 1, "follower_pull") for t in range(3)]
    prepared = prepared_by_hand({e: (a, 0.0, 0.0) for e, a in zip(pulls, [0.0, 0.5, -0.5], strict=True)})
    # Temperature 0.5 / ln 2 makes the exponentials 1, 2 and 1/2; the cap takes 2 to 1.5. Mean before: 7/6.
    problem = tiny(temperature=0.5 / LN2, cap=1.5)
    assert list(oracle.pull_weights(problem, pulls, prepared).values()) == pytest.approx([1.0, 1.5, 0.5])
    problem = replace(problem, cap=100.0, pull_normalise=True)
    assert list(oracle.pull_weights(problem, pulls, prepared).values()) == pytest.approx([6 / 7, 12 / 7, 3 / 7])
    problem = replace(problem, use_advantage=False)
    assert list(oracle.pull_weights(problem, pulls, prepared).values()) == [1.0, 1.0, 1.0]
    prepared.advantage[pulls[0]] = 1e6
    assert oracle.pull_weights(tiny(), pulls[:1], prepared) == {pulls[0]: 100.0}


def test_reverse_temperature_by_hand() -> None:
    # Follower's mean 1, leader's 0, action 1/2 + ln 2: log π_1 - log π_0 = a - 1/2 = ln 2 (see `tiny`). At ratio 1 with
    # Â = 1 and λ_r = 1/2 the surrogate is -(1 - ln2/2). Its derivative in log π_1 is -(1 - ln2/2) + 1/2, and log π_1
    # grows with φ_1 by a - 1 = ln2 - 1/2. The leader's φ gets nothing.
    row = Evaluation(0, 1, 1, "own")
    problem = tiny(reverse_temperature=0.5, critic_coef=0.0)
    prepared = prepared_by_hand({row: (1.0, 0.0, 0.0)})
    parts = oracle.loss(problem, [row], prepared)
    assert parts.actor.item() == pytest.approx(-(1.0 - LN2 / 2), abs=1e-14)
    grad = oracle.gradients(parts.total, problem.params)["phi"]
    assert grad[:, 0].tolist() == pytest.approx([0.0, (LN2 / 2 - 0.5) * (LN2 - 0.5)], abs=1e-14)
    sapg = oracle.loss(replace(problem, algo="sapg"), [row], prepared)
    assert sapg.actor.item() == pytest.approx(-1.0, abs=1e-14)


def test_kappa_by_hand() -> None:
    # New N(0, 1) of the leader against the follower's N(1, 1) on one borrowed row, and against itself on one own row.
    problem = tiny()
    own, borrow, pull = (
        Evaluation(0, 0, 0, "own"),
        Evaluation(0, 1, 0, "leader_borrows"),
        Evaluation(0, 0, 1, "follower_pull"),
    )
    outputs = oracle.evaluate(problem, [own, borrow, pull])
    same = math.log(1 + 1e-5) + 1 / (2 * (1 + 1e-5)) - 0.5
    apart = math.log(1 + 1e-5) + 2 / (2 * (1 + 1e-5)) - 0.5
    reference = oracle.behaviour(problem)
    assert oracle.kappa(outputs, reference, "own") == pytest.approx(same, abs=1e-15)
    assert oracle.kappa(outputs, reference) == pytest.approx((same + apart) / 2, abs=1e-15)
    assert oracle.kappa(outputs, reference, "all") == pytest.approx((same + 2 * apart) / 3, abs=1e-15)
    # N(0, 1) against N(1, 2²): ln 2 + (1 + 1)/(2·4) - 1/2, each with its 1e-5.
    reference[own] = (torch.ones(1, dtype=torch.float64), torch.tensor([LN2], dtype=torch.float64))
    wider = math.log(2 + 1e-5) + 2 / (2 * (4 + 1e-5)) - 0.5
    assert oracle.kappa(outputs, reference, "own") == pytest.approx(wider, abs=1e-15)


def test_rate_rule() -> None:
    assert oracle.next_rate(3e-4, 0.0, 0.01) == pytest.approx(4.5e-4)
    assert oracle.next_rate(3e-4, 0.03, 0.01) == pytest.approx(2e-4)
    assert oracle.next_rate(3e-4, 0.01, 0.01) == 3e-4
    assert oracle.next_rate(9e-3, 0.0, 0.01) == 1e-2
    assert oracle.next_rate(1.2e-6, 1.0, 0.01) == 1e-6
