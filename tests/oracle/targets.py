"""What is computed once per iteration, at the parameters of the rollout.

The conditioned actor-critic on a single row (sheet §1.2, §1.3); advantages and returns of every evaluation in raw units
(sheet §2.3, §2.4); and from these what the losses read (sheet §1.5, §2.5).
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from oracle.problem import Evaluation, Problem, plan

State = tuple[Tensor, Tensor] | None
"""The LSTM's (h, c), each [h]; None in an MLP."""


class Output(NamedTuple):
    """What the network says about one row: `mean` [A], `log_std` [A], `value` (scalar, normalised units)."""

    mean: Tensor
    log_std: Tensor
    value: Tensor
    state: State


def network(params: dict[str, Tensor], obs_row: Tensor, policy: int, state: State) -> Output:
    """One step of policy `policy` on one observation [D]. Zeroing the state at an episode's start is the caller's."""
    x = obs_row
    if "phi" in params:
        x = torch.cat([obs_row, params["phi"][policy]])
    if "w_ih" in params:
        if state is None:
            raise ValueError("an LSTM needs a state")
        state = lstm_step(params, x, state)
        x = layer_norm(state[0], params["ln_w"], params["ln_b"])
    layer = 0
    while f"w{layer}" in params:
        x = elu(params[f"w{layer}"] @ x + params[f"b{layer}"])
        layer += 1
    mean = params["w_mu"] @ x + params["b_mu"]
    value = (params["w_v"] @ x + params["b_v"])[0]
    return Output(mean, params["log_std"][policy], value, state)


def lstm_step(params: dict[str, Tensor], x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """c' = f·c + i·g, h' = o·tanh(c'), with the four gates stacked in the order i, f, g, o."""
    h, c = state
    gates = params["w_ih"] @ x + params["b_ih"] + params["w_hh"] @ h + params["b_hh"]
    n = h.shape[0]
    i, f = sigmoid(gates[:n]), sigmoid(gates[n : 2 * n])
    g, o = torch.tanh(gates[2 * n : 3 * n]), sigmoid(gates[3 * n :])
    c = f * c + i * g
    return o * torch.tanh(c), c


def sigmoid(x: Tensor) -> Tensor:
    """1 / (1 + e^-x)."""
    return 1.0 / (1.0 + torch.exp(-x))


def elu(x: Tensor) -> Tensor:
    """x where positive, e^x - 1 elsewhere."""
    return torch.where(x > 0.0, x, torch.expm1(torch.where(x > 0.0, torch.zeros_like(x), x)))


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """(x - mean) / sqrt(var + 1e-5) · weight + bias, with the biased variance."""
    n = x.shape[0]
    mean = x.sum() / n
    var = ((x - mean) ** 2).sum() / n
    return (x - mean) / torch.sqrt(var + 1e-5) * weight + bias


def log_prob(mean: Tensor, log_std: Tensor, action: Tensor) -> Tensor:
    """log N(action; mean, sigma), summed over actions: minus sheet §1.3's neglogp."""
    total = torch.zeros((), dtype=torch.float64)
    for d in range(action.shape[0]):
        z = (action[d] - mean[d]) / torch.exp(log_std[d])
        total = total - 0.5 * z * z - 0.5 * math.log(2.0 * math.pi) - log_std[d]
    return total


def entropy(log_std: Tensor) -> Tensor:
    """Σ_d (1/2 + 1/2 ln 2π + log σ_d) (sheet §1.3)."""
    total = torch.zeros((), dtype=torch.float64)
    for d in range(log_std.shape[0]):
        total = total + 0.5 + 0.5 * math.log(2.0 * math.pi) + log_std[d]
    return total


def normalise(x: float, mean: float, var: float) -> float:
    """Raw value to the network's units, clamped to ±5 (sheet §1.5)."""
    return min(max((x - mean) / math.sqrt(var + 1e-5), -5.0), 5.0)


def denormalise(y: float, mean: float, var: float) -> float:
    """The network's value to raw units: √(v + 1e-5)·clamp(y, ±5) + m (sheet §1.5)."""
    return math.sqrt(var + 1e-5) * min(max(y, -5.0), 5.0) + mean


class Target(NamedTuple):
    """`advantage` not normalised, `returns` the critic's target, `value` the old value; all in raw units."""

    advantage: float
    returns: float
    value: float


def targets(problem: Problem) -> dict[Evaluation, Target]:
    """Own rows: GAE. Borrowed rows: one-step TD or V-trace under the borrower's value."""
    found: dict[Evaluation, Target] = {}
    with torch.no_grad():
        for evaluation in plan(problem):
            if evaluation in found:
                continue
            env, policy, group = evaluation.env, evaluation.policy, evaluation.group
            if group == "own":
                path = gae(problem, env)
            elif problem.estimator == "td":
                path = one_step(problem, env, policy)
            elif problem.estimator == "gae":
                path = followed(problem, env, policy)
            else:
                path = vtrace(problem, env, policy)
            for t in range(problem.horizon):
                found[Evaluation(t, env, policy, group)] = path[t]
    return found


def gae(problem: Problem, env: int) -> list[Target]:
    """Generalised advantage estimate of one environment under its collector (sheet §2.3).

    δ_t = r_t + r_adv,t + γ·V_next - V_t and A_t = δ_t + γτ·A_{t+1}. A termination is worth V_next = 0, a truncation
    V_next = V(final_obs); either ends the trace (DESIGN §4, §7).
    """
    path: list[Target] = []
    following = 0.0
    for t in reversed(range(problem.horizon)):
        value = problem.value[t, env].item()
        reward = problem.reward[t, env].item() + problem.adversarial[t, env].item()
        following_value, done = successor(problem, t, env, problem.value[t + 1, env].item())
        advantage = reward + problem.discount * following_value - value
        if not done:
            advantage += problem.discount * problem.gae_lambda * following
        path.insert(0, Target(advantage, advantage + value, value))
        following = advantage
    return path


def one_step(problem: Problem, env: int, policy: int) -> list[Target]:
    """G_t = r_t + γ·V_k(s_{t+1}) and A_t = G_t - V_k(s_t) of borrower k (sheet §2.4): environment reward only."""
    path = []
    for t in range(problem.horizon):
        value = borrowed_value(problem, t, env, policy)
        following, _ = successor(problem, t, env, borrowed_value(problem, t + 1, env, policy))
        returns = problem.reward[t, env].item() + problem.discount * following
        path.append(Target(returns - value, returns, value))
    return path


def followed(problem: Problem, env: int, policy: int) -> list[Target]:
    """A_t = Σ_k (γτ)^k · Π_{j=1..k} min(1, r_{t+j}) · δ_{t+k} up to the episode's end, written as that sum."""
    deltas = [target.advantage for target in one_step(problem, env, policy)]
    values = [target.value for target in one_step(problem, env, policy)]
    path = []
    for t in range(problem.horizon):
        advantage, weight = 0.0, 1.0
        for s in range(t, problem.horizon):
            advantage += weight * deltas[s]
            if problem.terminated[s, env] or problem.truncated[s, env] or s + 1 == problem.horizon:
                break
            out = single_step(problem, s + 1, env, policy)
            new = log_prob(out.mean, out.log_std, problem.action[s + 1, env]).item()
            ratio = math.exp(min(0.0, new - problem.log_prob[s + 1, env].item()))
            weight *= problem.discount * problem.gae_lambda * ratio
        path.append(Target(advantage, advantage + values[t], values[t]))
    return path


def vtrace(problem: Problem, env: int, policy: int) -> list[Target]:
    """V-trace of Espeholt et al. 2018, eq. 1, with λ = ρ̄ = c̄ = 1, of borrower k along the collector's trajectory.

    v_t = V_t + ρ_t(r_t + γ·V_{t+1} - V_t) + γ·c_t(v_{t+1} - V_{t+1}) with ρ_t = c_t = min(1, π_k/π_collector), where
    v_T = V_k(s_T). The advantage is r_t + γ·v_{t+1} - V_t without ρ_t, because the surrogate carries the ratio. At a
    truncation both V_{t+1} and v_{t+1} are V(final_obs), at a termination both are 0.
    """
    path: list[Target] = []
    last = problem.horizon
    following_value = borrowed_value(problem, last, env, policy)
    following_target = following_value
    for t in reversed(range(problem.horizon)):
        reward = problem.reward[t, env].item()
        value = borrowed_value(problem, t, env, policy)
        next_value, done = successor(problem, t, env, following_value)
        next_target = next_value if done else following_target
        out = single_step(problem, t, env, policy)
        log_ratio = log_prob(out.mean, out.log_std, problem.action[t, env]).item() - problem.log_prob[t, env].item()
        rho = min(1.0, math.exp(min(log_ratio, 1.0)))
        delta = rho * (reward + problem.discount * next_value - value)
        target = value + delta + problem.discount * rho * (next_target - next_value)
        path.insert(0, Target(reward + problem.discount * next_target - value, target, value))
        following_value, following_target = value, target
    return path


def successor(problem: Problem, t: int, env: int, value: float) -> tuple[float, bool]:
    """The value that follows step t, and whether the episode ended there; `value` is V(s_{t+1})."""
    if problem.terminated[t, env]:
        return 0.0, True
    if problem.truncated[t, env]:
        return problem.final_value[t, env].item(), True
    return value, False


def single_step(problem: Problem, t: int, env: int, policy: int) -> Output:
    """The rollout's network under `policy`, one step from the collector's stored state at t (sheet §2.4)."""
    return network(problem.params, problem.obs[t, env], policy, problem.state(t, env))


def borrowed_value(problem: Problem, t: int, env: int, policy: int) -> float:
    """V_k(s_t) in raw units, with the value normaliser of the rollout."""
    y = single_step(problem, t, env, policy).value.item()
    return denormalise(y, problem.value_mean, problem.value_var)


@dataclass
class Prepared:
    """Per evaluation what one iteration's losses need, and the value normaliser after its two merges."""

    target: dict[Evaluation, Target]
    advantage: dict[Evaluation, float]
    """Normalised over the scope."""
    value: dict[Evaluation, float]
    """Old value, normalised with the statistics after the first merge."""
    returns: dict[Evaluation, float]
    """Normalised with the statistics after both merges."""
    centre: dict[Evaluation, float]
    """Centre of the clip interval."""
    value_mean: float
    value_var: float
    value_count: float


def prepare(problem: Problem) -> Prepared:
    """Everything that is computed once per iteration, at the parameters of the rollout."""
    target = targets(problem)
    stats = (problem.value_mean, problem.value_var, problem.value_count)
    stats = merge(stats, [target[e].value for e in target])
    value = {e: normalise(target[e].value, stats[0], stats[1]) for e in target}
    stats = merge(stats, [target[e].returns for e in target])
    returns = {e: normalise(target[e].returns, stats[0], stats[1]) for e in target}
    advantage = normalised_advantages(problem, target)
    return Prepared(target, advantage, value, returns, clip_centres(problem), *stats)


def normalised_advantages(problem: Problem, target: dict[Evaluation, Target]) -> dict[Evaluation, float]:
    """Â = (A - mean)/(std + 1e-8) with the unbiased std (sheet §2.5).

    The scope `global` is all evaluations at once, `group` each group, `policy` each learner and source within a group;
    `centred` takes away the mean of the last and divides by the deviation of what is left over the group.
    """
    advantage = {e: target[e].advantage for e in target}
    if problem.advantage_scope == "centred":
        for members in scopes(problem, target, "policy"):
            mean, _ = mean_and_variance([advantage[e] for e in members])
            advantage |= {e: advantage[e] - mean for e in members}
    found = {}
    scope = "group" if problem.advantage_scope == "centred" else problem.advantage_scope
    for members in scopes(problem, target, scope):
        mean, var = mean_and_variance([advantage[e] for e in members])
        for e in members:
            found[e] = (advantage[e] - mean) / (math.sqrt(var) + 1e-8)
    return found


def scopes(problem: Problem, evaluations: Iterable[Evaluation], scope: str) -> Iterable[list[Evaluation]]:
    """Evaluations that are normalised together."""
    found: dict[object, list[Evaluation]] = {}
    for e in evaluations:
        key: object = None
        if scope == "group":
            key = e.group
        if scope == "policy":
            key = (e.group, e.policy, problem.policy_id[e.env])
        found.setdefault(key, []).append(e)
    return found.values()


def mean_and_variance(xs: list[float]) -> tuple[float, float]:
    """Mean and unbiased variance."""
    mean = math.fsum(xs) / len(xs)
    return mean, math.fsum((x - mean) ** 2 for x in xs) / (len(xs) - 1)


def merge(stats: tuple[float, float, float], xs: list[float]) -> tuple[float, float, float]:
    """(mean, variance, count) after a batch, by the parallel-variance formula of sheet §1.5.

    The batch enters with its unbiased variance times its count.
    """
    mean, var, count = stats
    n = len(xs)
    batch_mean, batch_var = mean_and_variance(xs)
    delta = batch_mean - mean
    total = count + n
    squares = var * count + batch_var * n + delta * delta * count * n / total
    return mean + delta * n / total, squares / total, total


def clip_centres(problem: Problem) -> dict[Evaluation, float]:
    """1, or π_leader,old / π_follower,old at the rollout's parameters on the leader's borrowed rows (sheet §4.2)."""
    found = {}
    with torch.no_grad():
        for e in plan(problem):
            found[e] = 1.0
            if problem.clip_centre == "old_ratio" and e.group == "leader_borrows":
                out = single_step(problem, e.t, e.env, 0)
                new = log_prob(out.mean, out.log_std, problem.action[e.t, e.env]).item()
                found[e] = math.exp(new - problem.log_prob[e.t, e.env].item())
    return found
