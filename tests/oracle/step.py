"""The optimizer's step, κ and the learning rate, and a whole update (sheet §4.6, §5)."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from oracle.losses import Parts, evaluate, loss
from oracle.network import Output
from oracle.plan import Evaluation, Item, plan
from oracle.prepare import Prepared, prepare
from oracle.problem import Problem

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
    grads = torch.autograd.grad(total, list(params.values()), allow_unused=True)
    found = {}
    for (name, p), g in zip(params.items(), grads, strict=True):
        found[name] = torch.zeros_like(p) if g is None else g
    return found


def clip_gradients(grads: dict[str, Tensor], limit: float) -> tuple[dict[str, Tensor], float]:
    """Gradients times min(1, limit/(norm + 1e-6)), as PyTorch clips, and the global norm before."""
    norm = math.sqrt(math.fsum(x * x for g in grads.values() for x in g.flatten().tolist()))
    factor = min(1.0, limit / (norm + 1e-6))
    return {name: g * factor for name, g in grads.items()}, norm


@dataclass
class Adam:
    """Moments of Adam with β = (0.9, 0.999), eps 1e-8, no weight decay (sheet §5.4)."""

    steps: int
    first: dict[str, Tensor]
    second: dict[str, Tensor]

    @classmethod
    def zeros(cls, params: dict[str, Tensor]) -> "Adam":
        """Before the first step."""
        first = {name: torch.zeros_like(p) for name, p in params.items()}
        return cls(0, first, {name: torch.zeros_like(p) for name, p in params.items()})


def adam_step(
    params: dict[str, Tensor], grads: dict[str, Tensor], adam: Adam, rate: float
) -> tuple[dict[str, Tensor], Adam]:
    """New parameters and moments: p - rate · (m/(1-β1^k)) / (√(v/(1-β2^k)) + 1e-8)."""
    steps = adam.steps + 1
    new, first, second = {}, {}, {}
    for name, p in params.items():
        first[name] = 0.9 * adam.first[name] + 0.1 * grads[name]
        second[name] = 0.999 * adam.second[name] + 0.001 * grads[name] ** 2
        m = first[name] / (1.0 - 0.9**steps)
        v = second[name] / (1.0 - 0.999**steps)
        new[name] = (p.detach() - rate * m / (torch.sqrt(v) + 1e-8)).requires_grad_()
    return new, Adam(steps, first, second)


@dataclass
class Learned:
    """After an update: parameters, optimizer, rate, and per optimizer step what was seen before it was taken."""

    params: dict[str, Tensor]
    adam: Adam
    rate: float
    prepared: Prepared
    parts: list[Parts]
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
    adam: Adam | None = None,
) -> Learned:
    """The update of one iteration; `passes` holds the minibatches of every mini-epoch in order.

    Per minibatch: forward, loss, clipped gradients, Adam, then κ from the distributions *before* the step, which become
    the reference of these rows (`sliding`). The rate moves after a mini-epoch, by the plain mean of its κ, or after
    every minibatch (sheet §4.6, §5.2, §5.3).
    """
    params = dict(problem.params)
    done = Learned(params, adam or Adam.zeros(params), learning_rate, prepare(problem), [], [], [], [])
    reference = behaviour(problem)
    for minibatches in passes:
        kls = []
        for minibatch in minibatches:
            parts = loss(problem, minibatch, done.prepared, done.params)
            grads, norm = clip_gradients(gradients(parts.total, done.params), grad_norm)
            with torch.no_grad():
                outputs = evaluate(problem, minibatch, done.params)
            kls.append(kappa(outputs, reference, kl_rows))
            done.params, done.adam = adam_step(done.params, grads, done.adam, done.rate)
            done.parts.append(parts)
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
