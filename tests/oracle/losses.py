"""The loss of one minibatch (sheet §4; paper eq. SAPG_L_aloss, SAPG_Fi_aloss and CPO_objective)."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from oracle.network import Output, entropy, log_prob, network
from oracle.plan import Evaluation, Item, Sequence, rows
from oracle.prepare import Prepared
from oracle.problem import GROUPS, Problem


@dataclass
class Parts:
    """The loss and what it is made of; every part is a sum over its rows divided by *all* n rows of the minibatch.

    total = loss_scale · (actor + critic_coef/2 · critic - entropy + bounds_coef · bounds)
    actor = own_weight · surrogate[own] + borrow_weight · surrogate[leader_borrows] + β · surrogate[follower_pull]
    """

    total: Tensor
    actor: Tensor
    critic: Tensor
    bounds: Tensor
    entropy: Tensor
    """With every row's coefficient in it."""
    surrogate: dict[str, Tensor]
    """By group; that of `follower_pull` is the mean of w·neglogp."""
    weight: dict[Evaluation, float]
    """Of the pull rows, after cap and normalisation."""
    ratio: dict[Evaluation, float]
    """π_new/π_collector of the rows with a surrogate."""
    count: dict[str, int]
    """Rows by group."""


def evaluate(
    problem: Problem, minibatch: list[Item], params: dict[str, Tensor] | None = None, policy: int | None = None
) -> dict[Evaluation, Output]:
    """The training forward: sequences re-unrolled from the collector's state at their start (sheet §3.2, §3.4).

    The state is zeroed before rows that start an episode, inside and at the first row. A single `Evaluation` is a
    sequence of one row. `policy` unrolls under another policy than the plan's.
    """
    params = problem.params if params is None else params
    found: dict[Evaluation, Output] = {}
    for item in minibatch:
        members = item.evaluations(problem.sequence) if isinstance(item, Sequence) else [item]
        state = None
        if problem.state_h is not None and problem.state_c is not None:
            state = (problem.state_h[members[0].t, item.env], problem.state_c[members[0].t, item.env])
        for e in members:
            if state is not None and problem.start[e.t, e.env]:
                state = (torch.zeros_like(state[0]), torch.zeros_like(state[1]))
            out = network(params, problem.obs[e.t, e.env], e.policy if policy is None else policy, state)
            state = out.state
            found[e] = out
    return found


def loss(problem: Problem, minibatch: list[Item], prepared: Prepared, params: dict[str, Tensor] | None = None) -> Parts:
    """Loss at `params` (the rollout's unless given) of evaluations (MLP) or sequences (LSTM)."""
    if problem.recurrent and any(isinstance(item, Evaluation) for item in minibatch):
        raise ValueError("an LSTM trains on sequences")
    members = rows(problem, minibatch)
    n = len(members)
    outputs = evaluate(problem, minibatch, params)
    leader = leader_log_probs(problem, minibatch, params)
    weight = pull_weights(problem, members, prepared)
    zero = torch.zeros((), dtype=torch.float64)
    surrogates = dict.fromkeys(GROUPS, zero)
    critic, bounds, bonus = zero, zero, zero
    ratios: dict[Evaluation, float] = {}
    for e in members:
        out = outputs[e]
        new = log_prob(out.mean, out.log_std, problem.action[e.t, e.env])
        if e.group == "follower_pull":
            surrogates[e.group] = surrogates[e.group] - weight[e] * new
            continue
        ratio = torch.exp(new - problem.log_prob[e.t, e.env])
        ratios[e] = ratio.item()
        advantage = torch.tensor(prepared.advantage[e], dtype=torch.float64)
        if e in leader:
            advantage = advantage - problem.reverse_temperature * (new - leader[e])
        surrogates[e.group] = surrogates[e.group] + surrogate(
            advantage, ratio, problem.clip_of(e.policy), prepared.centre[e]
        )
        critic = critic + value_loss(out.value, prepared.value[e], prepared.returns[e], problem.clip_of(e.policy))
        bounds = bounds + bounds_loss(out.mean)
        bonus = bonus + entropy_coefficient(problem, e.policy) * entropy(out.log_std)
    surrogates = {group: total / n for group, total in surrogates.items()}
    actor = problem.own_weight * surrogates["own"] + problem.borrow_weight * surrogates["leader_borrows"]
    actor = actor + problem.beta * surrogates["follower_pull"]
    critic, bounds, bonus = critic / n, bounds / n, bonus / n
    total = problem.loss_scale * (actor + 0.5 * problem.critic_coef * critic - bonus + problem.bounds_coef * bounds)
    count = {group: sum(1 for e in members if e.group == group) for group in GROUPS}
    return Parts(total, actor, critic, bounds, bonus, surrogates, weight, ratios, count)


def surrogate(advantage: Tensor, ratio: Tensor, clip: float, centre: float) -> Tensor:
    """max(-Âρ, -Â·clamp(ρ, c(1-ε), c(1+ε))) (sheet §4.2)."""
    low, high = centre * (1.0 - clip), centre * (1.0 + clip)
    clipped = ratio
    if ratio < low:
        clipped = torch.tensor(low, dtype=torch.float64)
    if ratio > high:
        clipped = torch.tensor(high, dtype=torch.float64)
    plain, other = -advantage * ratio, -advantage * clipped
    return other if other > plain else plain


def value_loss(value: Tensor, old: float, returns: float, clip: float) -> Tensor:
    """max((V - G)², (V_c - G)²) with V_c within ε of the old value, in normalised units (sheet §4.5)."""
    plain = (value - returns) ** 2
    change = value.item() - old
    if abs(change) <= clip:
        return plain
    clipped = torch.tensor((old + math.copysign(clip, change) - returns) ** 2, dtype=torch.float64)
    return clipped if clipped > plain else plain


def bounds_loss(mean: Tensor) -> Tensor:
    """Σ_d max(μ - 1.1, 0)² + min(μ + 1.1, 0)² (sheet §4.5)."""
    total = torch.zeros((), dtype=torch.float64)
    for d in range(mean.shape[0]):
        if mean[d] > 1.1:
            total = total + (mean[d] - 1.1) ** 2
        if mean[d] < -1.1:
            total = total + (mean[d] + 1.1) ** 2
    return total


def entropy_coefficient(problem: Problem, policy: int) -> float:
    """η of the learner; the leader, policy 0, gets `entropy_coef` alone (sheet §1.6 with the leader first)."""
    if problem.policies == 1:
        return problem.entropy_coef
    return problem.entropy_coef + problem.entropy_scale * 0.5 * policy / (problem.policies - 1)


def pull_weights(problem: Problem, members: list[Evaluation], prepared: Prepared) -> dict[Evaluation, float]:
    """w = min(exp(Â/λ_f), cap) of the pull rows; `pull_normalise` divides by each follower's mean in the minibatch."""
    weight = {}
    for e in members:
        if e.group == "follower_pull":
            weight[e] = 1.0
            if problem.use_advantage:
                exponent = prepared.advantage[e] / problem.temperature
                weight[e] = problem.cap if exponent > 700.0 else min(math.exp(exponent), problem.cap)
    if problem.pull_normalise:
        for policy in range(1, problem.policies):
            own = [e for e in weight if e.policy == policy]
            mean = math.fsum(weight[e] for e in own) / max(len(own), 1)
            weight |= {e: weight[e] / mean for e in own}
    return weight


def leader_log_probs(
    problem: Problem, minibatch: list[Item], params: dict[str, Tensor] | None
) -> dict[Evaluation, Tensor]:
    """log π_leader of followers' own rows, detached, for surr_r of sheet §4.4; empty at λ_r = 0 and outside CPO.

    A sequence is unrolled under the leader from the state its own unroll starts from.
    """
    if problem.algo != "cpo" or problem.reverse_temperature == 0.0:
        return {}
    followers: list[Item] = [item for item in minibatch if item.group == "own" and item.policy != 0]
    with torch.no_grad():
        outputs = evaluate(problem, followers, params, policy=0)
        return {e: log_prob(o.mean, o.log_std, problem.action[e.t, e.env]) for e, o in outputs.items()}
