"""The equations of SAC as functions of tensors: B rows, two critics, A actions."""

import math

import torch
from torch import Tensor
from torch.nn.functional import softplus

from echelon.models import gaussian


def squashed_log_prob(before: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    """log π(tanh u) of u = `before`, which is N(mean, exp(log_std)²): `[..., A] -> [...]`.

    log N(u) - Σ log(1 - tanh² u), in a form that stays finite where tanh is flat.
    """
    return gaussian.log_prob(before, mean, log_std) - 2 * (math.log(2) - before - softplus(-2 * before)).sum(-1)


def sample(mean: Tensor, log_std: Tensor, noise: Tensor | None) -> tuple[Tensor, Tensor]:
    """The action `[..., A]`, `noise` standard deviations from the mean before tanh, and its log π `[...]`."""
    before = mean if noise is None else mean + log_std.exp() * noise
    return before.tanh(), squashed_log_prob(before, mean, log_std)


def project(value: Tensor, edges: Tensor, sigma: float) -> Tensor:
    """HL-Gauss: the share of N(value, sigma²) in each of K bins, whose K+1 `edges` are equally spaced: `[..., K]`.

    Values beyond the centres of the outermost bins count as these.
    """
    half = (edges[1] - edges[0]) / 2
    value = value.clamp(edges[0] + half, edges[-1] - half)
    below = torch.erf((edges - value[..., None]) / (sigma * math.sqrt(2)))
    return (below[..., 1:] - below[..., :-1]) / (below[..., -1:] - below[..., :1])


def expectation(logits: Tensor, centres: Tensor) -> Tensor:
    """The mean of a distribution over bins: `[..., K] -> [...]`. Not a product of matrices, which may be in bf16."""
    return (logits.softmax(-1) * centres).sum(-1)


def target(reward: Tensor, factor: Tensor, q: Tensor, log_prob: Tensor, alpha: Tensor) -> Tensor:
    """y = Σ γⁱ r_i + γⁿ (min_j Q_j(s', a') - α log π(a'|s')), `[B]`, with a' drawn from the policy.

    `factor` is γⁿ, or 0 where the episode ended in between; q `[2, B]` are the target critics' values.
    """
    return reward + factor * (q.amin(0) - alpha * log_prob)


def critic_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy between the target's bins `[B, K]` and both critics' `[2, B, K]`: mean over rows, sum of both."""
    return -(labels * logits.log_softmax(-1)).sum(-1).mean(1).sum()


def actor_loss(q: Tensor, log_prob: Tensor, alpha: Tensor) -> Tensor:
    """E[α log π(a|s) - min_j Q_j(s, a)], of q `[2, B]` at actions that have a gradient; α has none."""
    return (alpha.detach() * log_prob - q.amin(0)).mean()


def temperature_loss(alpha: Tensor, log_prob: Tensor, entropy: float) -> Tensor:
    """E[α (-log π(a|s) - H*)], with a gradient for α alone: it rises while the entropy is below `entropy`, H*."""
    return (alpha * (-log_prob.detach() - entropy)).mean()
