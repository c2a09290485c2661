"""What clipping takes from the policy gradient, and the bound on it of Proposition 2.

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
"""

import torch
from torch import Tensor


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
