"""Loss terms per row. Pure functions of `[...]` tensors; algorithms average and weight them."""

import math

import torch
from torch import Tensor

SOFT_BOUND = 1.1
"""Action means may leave [-1, 1] by a tenth before they are pushed back."""
LOG_RATIO_LIMIT = 20.0
"""Limit of |log ratio|: beyond it, one row could make the whole gradient overflow."""


def surrogate(log_ratio: Tensor, advantage: Tensor, clip: float | Tensor, centre: Tensor | float = 1.0) -> Tensor:
    """PPO's clipped surrogate as a loss: max(-Âρ, -Â·clamp(ρ, c(1-ε), c(1+ε))) with ρ = exp(log_ratio)."""
    ratio = log_ratio.clamp(max=LOG_RATIO_LIMIT).exp()
    clipped = ratio.clamp(centre * (1 - clip), centre * (1 + clip))  # pyright: ignore[reportCallIssue, reportArgumentType]
    return torch.maximum(-advantage * ratio, -advantage * clipped)


def value_loss(value: Tensor, old_value: Tensor, returns: Tensor, clip: float | Tensor) -> Tensor:
    """The worse of the squared errors of the value and of the value moved by at most ε from the old one."""
    near = old_value + (value - old_value).clamp(-clip, clip)  # pyright: ignore[reportCallIssue, reportArgumentType]
    return torch.maximum((value - returns).square(), (near - returns).square())


def bounds_loss(mean: Tensor) -> Tensor:
    """Squared distance of action means to ±1.1 where they lie beyond, summed over actions: `[..., A] -> [...]`."""
    return (mean.abs() - SOFT_BOUND).clamp(min=0).square().sum(-1)


def pull_weight(advantage: Tensor, temperature: float, cap: float) -> Tensor:
    """min(exp(Â/λ_f), cap), computed so that a large advantage cannot overflow on its way to the cap."""
    return (advantage / temperature).clamp(max=math.log(cap)).exp()
