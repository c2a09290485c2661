"""The loss of one minibatch (sheet §4; paper eq. SAPG_L_aloss, SAPG_Fi_aloss and CPO_objective), and from it a whole
update: the optimizer's step, κ and the learning rate (sheet §4.6, §5)."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from oracle.problem import GROUPS, Evaluation, Item, Problem, Sequence, plan, rows
from oracle.targets import Output, Prepared, entropy, log_prob, network, prepare


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
    """Weights of the pull rows, after cap and normalisation."""
    ratio: dict[Evaluation, float]
    """π_new/π_collector of the rows with a surrogate."""


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
        state = problem.state(members[0].t, item.env)
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
    return Parts(total, actor, critic, bounds, bonus, surrogates, weight, ratios)


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


Reference = dict[Evaluation, tuple[Tensor, Tensor]]
"""(mean, log_std) of every evaluation, which κ is measured from."""


def behaviour(problem: Problem) -> Reference:
    """The collector's distributions: the reference of the first mini-epoch (sheet §5.3)."""
    return {e: (problem.mean[e.t, e.env], problem.log_std[e.t, e.env]) for e in plan(problem)}


def kappa(
    outputs: dict[Evaluation, Output],
    reference: Reference,
    kl_rows: Literal["no_pull", "own", "all"] = "no_pull",
) -> float:
    """Mean KL(new ‖ reference) over the rows that count, with the two 1e-5 of sheet §5.3."""
    kls = []
    for e, out in outputs.items():
        if kl_rows == "own" and e.group != "own":
            continue
        if kl_rows == "no_pull" and e.group == "follower_pull":
            continue
        mean, log_std = reference[e]
        kl = 0.0
        for d in range(mean.shape[0]):
            new, ref = math.exp(out.log_std[d].item()), math.exp(log_std[d].item())
            moved = mean[d].item() - out.mean[d].item()
            kl += math.log(ref / new + 1e-5) + (new**2 + moved**2) / (2.0 * (ref**2 + 1e-5)) - 0.5
        kls.append(kl)
    return math.fsum(kls) / len(kls)


def next_rate(rate: float, kl: float, threshold: float) -> float:
    """The rule of sheet §5.1: ÷1.5 above 2κ*, ×1.5 below κ*/2, within 1e-6 .. 1e-2."""
    if kl > 2.0 * threshold:
        return max(rate / 1.5, 1e-6)
    if kl < 0.5 * threshold:
        return min(rate * 1.5, 1e-2)
    return rate


def gradients(total: Tensor, params: dict[str, Tensor]) -> dict[str, Tensor]:
    """d total / d params; zeros where the loss does not reach."""
    grads = torch.autograd.grad(total, list(params.values()), allow_unused=True, materialize_grads=True)
    return dict(zip(params, grads, strict=True))


def clip_gradients(grads: dict[str, Tensor], limit: float) -> tuple[dict[str, Tensor], float]:
    """Gradients times min(1, limit/(norm + 1e-6)), as PyTorch clips, and the global norm before."""
    norm = math.sqrt(math.fsum(x * x for g in grads.values() for x in g.flatten().tolist()))
    factor = min(1.0, limit / (norm + 1e-6))
    return {name: g * factor for name, g in grads.items()}, norm


@dataclass
class Adam:
    """Moments of Adam with β = (0.9, 0.999), eps 1e-8, no weight decay (sheet §5.4)."""

    first: dict[str, Tensor]
    second: dict[str, Tensor]
    steps: int = 0

    def step(self, params: dict[str, Tensor], grads: dict[str, Tensor], rate: float) -> dict[str, Tensor]:
        """New parameters: p - rate · (m/(1-β1^k)) / (√(v/(1-β2^k)) + 1e-8)."""
        self.steps += 1
        new = {}
        for name, p in params.items():
            self.first[name] = 0.9 * self.first[name] + 0.1 * grads[name]
            self.second[name] = 0.999 * self.second[name] + 0.001 * grads[name] ** 2
            m = self.first[name] / (1.0 - 0.9**self.steps)
            v = self.second[name] / (1.0 - 0.999**self.steps)
            new[name] = (p.detach() - rate * m / (torch.sqrt(v) + 1e-8)).requires_grad_()
        return new


@dataclass
class Learned:
    """After an update: parameters, rate, and per optimizer step what was seen before it was taken."""

    params: dict[str, Tensor]
    rate: float
    prepared: Prepared
    norms: list[float]
    """Gradient norms before clipping."""
    kappas: list[float]
    rates: list[float]
    """Rate each step was taken with."""


def learn(
    problem: Problem,
    passes: list[list[list[Item]]],
    *,
    learning_rate: float = 5e-4,
    grad_norm: float = 1.0,
    kl_threshold: float = 0.016,
    rate_schedule: Literal["mini_epoch", "minibatch", "fixed"] = "mini_epoch",
    kl_reference: Literal["sliding", "rollout"] = "sliding",
    kl_rows: Literal["no_pull", "own", "all"] = "no_pull",
) -> Learned:
    """The update of one iteration; `passes` holds the minibatches of every mini-epoch in order.

    Per minibatch: forward, loss, clipped gradients, Adam, then κ from the distributions *before* the step, which become
    the reference of these rows (`sliding`). The rate moves after a mini-epoch, by the plain mean of its κ, or after
    every minibatch (sheet §4.6, §5.2, §5.3).
    """
    done = Learned(dict(problem.params), learning_rate, prepare(problem), [], [], [])
    adam = Adam(*({name: torch.zeros_like(p) for name, p in problem.params.items()} for _ in range(2)))
    reference = behaviour(problem)
    for minibatches in passes:
        kls = []
        for minibatch in minibatches:
            total = loss(problem, minibatch, done.prepared, done.params).total
            grads, norm = clip_gradients(gradients(total, done.params), grad_norm)
            with torch.no_grad():
                outputs = evaluate(problem, minibatch, done.params)
            kls.append(kappa(outputs, reference, kl_rows))
            done.params = adam.step(done.params, grads, done.rate)
            done.norms.append(norm)
            done.kappas.append(kls[-1])
            done.rates.append(done.rate)
            if kl_reference == "sliding":
                reference.update({e: (out.mean, out.log_std.clone()) for e, out in outputs.items()})
            if rate_schedule == "minibatch":
                done.rate = next_rate(done.rate, kls[-1], kl_threshold)
        if rate_schedule == "mini_epoch":
            done.rate = next_rate(done.rate, math.fsum(kls) / len(kls), kl_threshold)
    return done
