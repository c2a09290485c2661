"""How far the policies are apart: KL divergences between diagonal Gaussians, in closed form."""

import torch
from torch import Tensor


def gaussian_kl(mean_p: Tensor, log_std_p: Tensor, mean_q: Tensor, log_std_q: Tensor) -> Tensor:
    """KL(p ‖ q) of diagonal Gaussians: `[..., A]` each, broadcast against one another, summed over actions to `[...]`.

    Σ_d [ ln(σ_q/σ_p) + (σ_p² + (μ_p - μ_q)²) / (2 σ_q²) - ½ ] without any epsilon, so zero for equal
    distributions at every σ. Written with expm1, which keeps the digits of small differences.
    """
    log_ratio = 2.0 * (log_std_p - log_std_q)
    shift = (mean_p - mean_q) * torch.exp(-log_std_q)
    return 0.5 * (torch.expm1(log_ratio) - log_ratio + shift.square()).sum(-1)


def kl_matrix(mean: Tensor, log_std: Tensor) -> Tensor:
    """K `[M, M]`, from row to column: K[i, j] = E_s KL(π_i(·|s) ‖ π_j(·|s)) over states that policy i visited.

    `mean[i, k]` of `[M, M, S, A]` holds the action means of policy k on the S states of policy i; `log_std` is
    `[M, A]`. For another choice of states, say the leader's for all rows, expand `[M, S, A]` along a new first axis.
    """
    own_mean = mean.diagonal(dim1=0, dim2=1).permute(2, 0, 1)  # [M, S, A]: policy i on its own states
    divergence = gaussian_kl(own_mean[:, None], log_std[:, None, None], mean, log_std[None, :, None])  # [M, M, S]
    return divergence.mean(-1)


def nearest_policy(matrix: Tensor) -> Tensor:
    """For each policy i the other policy j with the smallest K[i, j]: `[M, M]` to integers `[M]`.

    CPO reaches its aim where this is 0, the leader, for every follower.
    """
    itself = torch.eye(matrix.shape[0], dtype=torch.bool, device=matrix.device)
    return matrix.masked_fill(itself, float("inf")).argmin(1)
