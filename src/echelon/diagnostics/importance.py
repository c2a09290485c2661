"""How much of the followers' data the leader can use: two statistics of the importance weights.

A row carries the weight w = π_leader(a|s) / π_collector(a|s), both policies at the parameters of the rollout, so the
leader's own rows have w = 1. With an LSTM the leader is evaluated from the collector's stored state.

Proposition 1 of the paper ties the two. For rows drawn from the collector E[w] = 1, hence by Jensen

    E|1 - w| ≤ √Var[w],

and with a share f of follower rows among all n (the leader's having w = 1)

    ESS / n = 1 / (1 + f Var[w]) ≤ 1 / (1 + f E|1 - w|²).

The paper's proof writes the same quotient without the numbers of rows in its denominator; `ess_rate` is the definition.
For Gaussians of equal covariance at KL divergence d both are functions of d alone: E|1 - w| = 2 erf(√d / 2) and, over
follower rows only, ESS / n = exp(-2 d).
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
