"""From raw targets to what the losses read (sheet §1.5, §2.5)."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from oracle.network import log_prob, normalise
from oracle.plan import Evaluation, plan
from oracle.problem import Problem
from oracle.targets import Target, single_step, targets


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
