"""The statistics of the paper's propositions as pure functions, and `measure`, which takes them of a rollout.

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

from echelon.config import UpdateConfig
from echelon.learning.targets import one_step
from echelon.models import gaussian
from echelon.models.actor_critic import ActorCritic
from echelon.ranks import ALONE, Ranks
from echelon.rollout.buffer import Rollout, Trajectory
from echelon.rollout.layout import LEADER, Layout

Distances = tuple[Tensor, dict[str, Tensor]]
"""The mean KL `[M, M]` from row to column, on states of the row's policy, and 0-d metrics; all on the device."""


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


@torch.no_grad()
def measure(model: ActorCritic, rollout: Rollout, layout: Layout, states: int, update: UpdateConfig) -> Distances:
    """Evaluate every policy on up to `states` rows of each policy's data, spread evenly over environments and steps, at
    the parameters that collected them.

    The metrics, of an ensemble only, tell how many of the followers' rows the leader can use, and how much of its
    gradient a clip around 1 takes away there (Proposition 2). A recurrent network takes a single step from the
    collector's stored state. Nothing random is drawn, so measuring never changes what is learned. Several ranks share
    the states between them.
    """
    ranks = layout.ranks
    rows = layout.spread_rows(rollout.horizon, -(-states // ranks.size))  # [M, S]
    flat = rows.flatten()
    networks = layout.networks
    # Every network looks at all states.
    looked_at = {name: x[:-1].flatten(0, 1)[flat] for name, x in rollout.obs.items()}
    everywhere = {name: torch.cat([x] * networks)[None] for name, x in looked_at.items()}
    projected = model.project(everywhere)
    state = rollout.state[:-1].flatten(0, 1)[flat].repeat(networks, 1)
    start = torch.zeros(1, len(state), dtype=torch.bool, device=flat.device)
    means = []
    for within in range(layout.each):
        output = model.evaluate(projected, layout.ids(within, len(flat)), state, start)
        means.append(output.mean.view(networks, *rows.shape, -1))
    mean = torch.stack(means, dim=1).flatten(0, 1).transpose(0, 1)  # [M of the states, M of the policy, S, A]
    kl = ranks.mean(kl_matrix(mean, model.log_std))
    if networks > 1:  # in a population none learns from another's rows
        return kl, {}
    action, behaviour = rollout.action.flatten(0, 1)[rows], rollout.log_prob.flatten(0, 1)[rows]
    log_w = gaussian.log_prob(action, mean[:, LEADER], model.log_std[LEADER]) - behaviour
    score = gaussian_score(action[1:], mean[1:, LEADER], model.log_std[LEADER]).flatten(0, 1)
    leads = log_w[1:].flatten(), _leader_advantage(model, rollout, layout, rows[1:].flatten(), update), score
    return kl, {
        "ess": ess_rate(log_w, ranks),
        "is_deviation": ranks.mean(is_deviation(log_w[1:])),
        "clip_bias": ranks.mean(clip_bias(*leads, update.clip)).norm(),
        "clip_bias_bound": ranks.mean(clip_bias_bound(*leads, update.clip).square()).sqrt(),
        "kl/follower_to_leader": kl[1:, LEADER].mean(),
        "nearest_is_leader": (nearest_policy(kl)[1:] == LEADER).float().mean(),
    }


def _leader_advantage(
    model: ActorCritic, rollout: Rollout, layout: Layout, rows: Tensor, update: UpdateConfig
) -> Tensor:
    """One-step TD errors `[n]` of flat rows by the leader's values, in units of scaled reward."""
    both = torch.cat((rows, rows + layout.num_envs))  # a row and the same environment's next
    obs = {name: x.flatten(0, 1)[both][None] for name, x in rollout.obs.items()}
    start = torch.zeros(1, len(both), dtype=torch.bool, device=rows.device)
    state = rollout.state.flatten(0, 1)[both]
    output = model.evaluate(model.project(obs), layout.ids(LEADER, len(both)), state, start)
    value = model.raw_value(output.value[0]).view(2, -1)
    parts = rollout.trajectory
    flat = (x.flatten(0, 1)[rows][None] for x in (parts.reward, parts.terminated, parts.truncated, parts.final_value))
    return one_step(Trajectory(*flat), value, update.discount)[0]
