"""The diagonal Gaussian every policy acts by: unsquashed, with a log sigma that does not depend on the state."""

import math

import torch
from torch import Tensor

LOG_2PI = math.log(2 * math.pi)


def log_prob(action: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    """log N(action; mean, exp(log_std)²) summed over actions: `[..., A] -> [...]`."""
    z = (action - mean) * torch.exp(-log_std)
    return -(0.5 * z.square() + log_std + 0.5 * LOG_2PI).sum(-1)


def entropy(log_std: Tensor) -> Tensor:
    """Differential entropy summed over actions: `[..., A] -> [...]`."""
    return (0.5 + 0.5 * LOG_2PI + log_std).sum(-1)
