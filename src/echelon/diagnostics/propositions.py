"""The statistics of the paper's propositions, as pure functions.

**Proposition 1**: how much of the followers' data the leader can use, by two statistics of the importance weights.
A row carries the weight w = π_leader(a|s) / π_collector(a|s), both policies at the parameters of the rollout, so the
leader's own rows have w = 1. With an LSTM the leader is evaluated from the collector's stored state.
For rows drawn from the collector E[w] = 1, hence by Jensen

    E|1 - w| ≤ √Var[w],

and with a share f of follower rows among all n (the leader's having w = 1)

    ESS / n = 1 / (1 + f Var[w]) ≤ 1 / (1 + f E|1 - w|²).

The paper's proof writes the same quotient without the numbers of rows in its denominator; `ess_rate` is the definition.
For Gaussians of equal covariance at KL divergence d both are functions of d alone: E|1 - w| = 2 erf(√d / 2) and, over
follower rows only, ESS / n = exp(-2 d).

**Proposition 2**: what clipping takes from the policy gradient, and a bound on it.
With r = π_θ(a|s) / π_behaviour(a|s) and advantages A that do not depend on θ, the gradients of the surrogate without
and with the clip are

    g_ac  = E[ r ∇log π_θ(a|s) A ]
    g_ppo = ∇ E[ min(r A, clip(r, 1-ε, 1+ε) A) ].

A row has no gradient left where the clipped branch is the smaller: for A > 0 and r > 1+ε, or A < 0 and r < 1-ε. So

    g_ac - g_ppo = E[ r ∇log π_θ A 1_clipped ]
    ‖g_ac - g_ppo‖² ≤ E[ ‖∇log π_θ‖² (|1-r| + 1)² A² 1_{|1-r| > ε} ],

by Jensen's inequality, 1_clipped ≤ 1_{|1-r| > ε} and r ≤ |1-r| + 1.

What the derivation assumes: rows are drawn from the behaviour policy, which does not depend on θ; the clip interval is
centred on 1 (`ensemble.clip_centre = "one"`); no row sits exactly on a clip edge. It compares two surrogates that share
the advantage estimate, so errors of that estimate are no part of the bias. The last step is an equality for r ≥ 1 only;
for r < 1 it overstates r by up to 2. The bound grows with |1-r| row by row, but it is no function of E|1-r| alone: it
weights each row by score and advantage.

Expectations are means over the given rows. The functions are exact for whatever parameters the score belongs to, which
for a full network would take one backward pass per row; `gaussian_score` gives it for the last ones in closed form.

**Proposition 3**: how far the policies are apart, by KL divergences between diagonal Gaussians in closed form.
"""

import torch
from torch import Tensor

from echelon.ranks import ALONE, Ranks


def is_deviation(log_w: Tensor) -> Tensor:
    """Mean of |1 - w| over rows; the paper takes all rows of all followers and none of the leader's.

    `log_w` is `[...]`, the result a scalar in its dtype: 0 for equal policies, at most 2 in expectation.
    """
    return torch.expm1(log_w.double()).abs().mean().to(log_w.dtype)


def ess_rate(log_w: Tensor, ranks: Ranks = ALONE) -> Tensor:
    """Effective share of all ranks' rows, (Σw)² / (n Σw²); the paper takes the rows of all policies, the leader's with
    w = 1.

    `log_w` is `[...]`, the result a scalar in its dtype, between 1/n and 1. A common factor of all weights cancels, so
    the largest is taken out before the exponential, and no weight overflows.
    """
    log_w64 = log_w.double()
    w = torch.exp(log_w64 - ranks.max(log_w64.max()))
    first, second = ranks.sum(torch.stack((w.sum(), w.square().sum()))).unbind()
    return (first.square() / (ranks.size * w.numel() * second)).to(log_w.dtype)


def gaussian_score(action: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    """∇log π(a|s) with respect to the mean and log σ of a diagonal Gaussian: `[n, A]` each, to `[n, 2A]`.

    Averaged over rows this is the gradient of two real parameters: the bias of the mean head and the policy's log σ.
    """
    noise = (action - mean) * torch.exp(-log_std)
    return torch.cat((noise * torch.exp(-log_std), noise.square() - 1.0), -1)


def clip_bias(log_ratio: Tensor, advantage: Tensor, score: Tensor, clip: float) -> Tensor:
    """g_ac - g_ppo: `log_ratio` ln r and `advantage` `[n]`, `score` `[n, P]`, to `[P]`."""
    change = torch.expm1(log_ratio.double())
    clipped = torch.where(advantage > 0, change > clip, (advantage < 0) & (change < -clip))
    weight = torch.where(clipped, (1.0 + change) * advantage, 0.0)
    return (weight[:, None] * score).mean(0).to(score.dtype)


def clip_bias_bound(log_ratio: Tensor, advantage: Tensor, score: Tensor, clip: float) -> Tensor:
    """Upper bound on the norm of `clip_bias`, from the same arguments: a scalar, 0 where no ratio leaves 1 ± `clip`."""
    deviation = torch.expm1(log_ratio.double()).abs()
    weight = torch.where(deviation > clip, (deviation + 1.0) * advantage, 0.0)
    return (weight.square() * score.square().sum(-1)).mean().sqrt().to(score.dtype)


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
