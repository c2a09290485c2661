"""The learning rate follows the KL divergence of the policy to where it was. All on the device."""

import torch
from torch import Tensor

FACTOR = 1.5
LOWEST, HIGHEST = 1e-6, 1e-2


def adapt(rate: Tensor, kl: Tensor, threshold: float | Tensor) -> Tensor:
    """The next rate: divided by 1.5 above twice the threshold, multiplied by 1.5 below half of it, within limits."""
    slower = (rate / FACTOR).clamp(min=LOWEST)
    faster = (rate * FACTOR).clamp(max=HIGHEST)
    return torch.where(kl > 2 * threshold, slower, torch.where(kl < 0.5 * threshold, faster, rate))


def scheduling_kl(mean: Tensor, log_std: Tensor, mean_ref: Tensor, log_std_ref: Tensor) -> Tensor:
    """The reference's KL(new ‖ ref) per row, with its two 1e-5 terms: `[..., A] -> [...]`.

    The terms keep it finite and bias it down at small sigma, which lets the rate rise; thresholds were tuned with them.
    `diagnostics.divergence.gaussian_kl` is the exact one.
    """
    std, std_ref = log_std.exp(), log_std_ref.exp()
    spread = (std.square() + (mean_ref - mean).square()) / (2 * (std_ref.square() + 1e-5))
    return (torch.log(std_ref / std + 1e-5) + spread - 0.5).sum(-1)
