"""Advantages and returns of every evaluation, in raw units, at the parameters of the rollout (sheet §2.3, §2.4)."""

import math
from typing import NamedTuple

import torch

from oracle.network import Output, denormalise, log_prob, network
from oracle.plan import Evaluation, plan
from oracle.problem import Problem


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
    state = None
    if problem.state_h is not None and problem.state_c is not None:
        state = (problem.state_h[t, env], problem.state_c[t, env])
    return network(problem.params, problem.obs[t, env], policy, state)


def borrowed_value(problem: Problem, t: int, env: int, policy: int) -> float:
    """V_k(s_t) in raw units, with the value normaliser of the rollout."""
    y = single_step(problem, t, env, policy).value.item()
    return denormalise(y, problem.value_mean, problem.value_var)
