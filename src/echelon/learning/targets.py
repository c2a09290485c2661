"""Targets: how much better an action was than the value function thought, for every evaluation in a plan.

They are computed from one rollout at the parameters that collected it. Truncated and terminated stay apart. A
terminated state is worth nothing; an episode cut by its time limit is worth `final_value`, the value of the observation
before the reset. In both cases nothing flows back from the next episode. Values have one row more than rewards:
`value[T]` is that of the state after the last step.
"""

from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from echelon.config import EnsembleConfig
from echelon.learning.losses import LOG_RATIO_LIMIT
from echelon.learning.plans import Plan
from echelon.learning.settings import Settings
from echelon.models import gaussian
from echelon.models.actor_critic import ActorCritic, Projected
from echelon.models.normaliser import Normaliser
from echelon.models.sharing import Pair
from echelon.ranks import ALONE, Ranks
from echelon.rollout.buffer import Rollout, Trajectory


def gae(trajectory: Trajectory, value: Tensor, discount: float | Tensor, smoothing: float | Tensor) -> Tensor:
    """Generalised advantage estimate `[T, n]`; discount and smoothing may be per environment, `[n]`.

    δ_t = r_t + γ V_{t+1} - V_t and A_t = δ_t + γτ A_{t+1}, each cut where an episode ends.
    """
    live = trajectory.live
    delta = one_step(trajectory, value, discount)
    advantage = torch.empty_like(delta)
    following = torch.zeros_like(delta[0])
    for t in reversed(range(delta.shape[0])):
        following = delta[t] + discount * smoothing * live[t] * following
        advantage[t] = following
    return advantage


def one_step(trajectory: Trajectory, value: Tensor, discount: float | Tensor) -> Tensor:
    """One-step temporal difference r_t + γ V_{t+1} - V_t `[T, n]`: `gae` without smoothing."""
    return trajectory.bootstrapped_reward(discount) + discount * value[1:] * trajectory.live - value[:-1]


def off_policy_gae(
    trajectory: Trajectory, value: Tensor, log_ratio: Tensor, discount: float | Tensor, smoothing: float | Tensor
) -> Tensor:
    """GAE on rows of another policy `[T, n]`: A_t = δ_t + γτ·min(1, r_{t+1})·A_{t+1}.

    `log_ratio` is log π_borrower - log π_collector `[T, n]`. Later steps count as far as the borrower would
    have taken the same actions: one-step TD if it never would, GAE if it always would. It is Retrace (Munos et al.
    2016) with states' values.
    """
    live = trajectory.live
    delta = one_step(trajectory, value, discount)
    likely = log_ratio.exp().clamp(max=1.0)
    advantage = torch.empty_like(delta)
    advantage[-1] = delta[-1]
    for t in reversed(range(delta.shape[0] - 1)):
        advantage[t] = delta[t] + discount * smoothing * live[t] * likely[t + 1] * advantage[t + 1]
    return advantage


def v_trace(
    trajectory: Trajectory, value: Tensor, log_ratio: Tensor, discount: float | Tensor
) -> tuple[Tensor, Tensor]:
    """V-trace with both truncation levels at 1 (Espeholt et al. 2018, equations 1 and 2): advantages, returns `[T, n]`.

    `log_ratio` is log π_borrower - log π_collector `[T, n]`. The advantage is r_t + γ v_{t+1} - V_t without the leading
    ratio, because the surrogate that uses it carries that ratio already.
    """
    live = trajectory.live
    reward = trajectory.bootstrapped_reward(discount)
    weight = log_ratio.exp().clamp(max=1.0)
    delta = weight * (reward + discount * value[1:] * live - value[:-1])
    correction = torch.empty_like(delta)
    following = torch.zeros_like(delta[0])
    for t in reversed(range(delta.shape[0])):
        following = delta[t] + discount * live[t] * weight[t] * following
        correction[t] = following
    target = value[:-1] + correction
    next_target = torch.cat((target[1:], value[-1:]))
    return reward + discount * next_target * live - value[:-1], target


@dataclass
class Targets:
    """`[L, G, S]` each, in the plan's order; before they are laid out, `[T, n]` of some environments' rows."""

    advantage: Tensor
    returns: Tensor
    value: Tensor
    centre: Tensor
    """Where the clip interval lies: 1, or on borrowed rows π_learner,old / π_collector,old."""


@torch.no_grad()
def compute_targets(
    plan: Plan,
    rollout: Rollout,
    model: ActorCritic,
    drawn: Tensor,
    extra_reward: Tensor | None,
    settings: Settings,
    ensemble: EnsembleConfig,
) -> Targets:
    """Compute raw (unnormalised) targets. `extra_reward` `[T, N]` is added to the rewards of own rows only."""
    trajectory = rollout.trajectory
    if extra_reward is not None:
        trajectory = replace(trajectory, reward=trajectory.reward + extra_reward)
    discount = settings.at("discount", plan.layout.policy_id, rollout.value.dtype)
    smoothing = settings.at("gae_lambda", plan.layout.policy_id, rollout.value.dtype)
    advantage = gae(trajectory, rollout.value, discount, smoothing)
    own = Targets(advantage, advantage + rollout.value[:-1], rollout.value[:-1], torch.ones_like(advantage))
    borrowed = _borrow(plan, rollout, model, drawn, settings, ensemble)
    names = ("advantage", "returns", "value", "centre")  # torch 2.11 does not compile `vars`
    return Targets(*(plan.table(getattr(own, name), [getattr(rows, name) for rows in borrowed]) for name in names))


def _borrow(
    plan: Plan, rollout: Rollout, model: ActorCritic, drawn: Tensor, settings: Settings, ensemble: EnsembleConfig
) -> list[Targets]:
    """Evaluate each pair: the source's rows under the learner, with the environment's rewards only.

    A recurrent network takes a single step from the collector's stored state at every row; nothing is unrolled.
    Rows that a time limit cut keep the collector's V(final_obs): under the learner it would take another pass, for one
    row in hundreds.
    """
    results: dict[Pair, Targets] = {}
    for source in {block.source: None for block in plan.pairs}:
        block = partial(plan.source, source=source, drawn=drawn)
        borrowed = rollout.map(block)
        # All learners of these rows share the observation part of the first layer.
        rows = {name: _network_first(x, plan)[None] for name, x in borrowed.obs.items()}
        projected, state = model.project(rows), _network_first(borrowed.state, plan)
        for learner in (block.learner for block in plan.pairs if block.source == source):
            results[learner, source] = _judge(plan, borrowed, model, learner, projected, state, settings, ensemble)
    return [results[block.pair] for block in plan.pairs]


def _judge(
    plan: Plan,
    borrowed: Rollout,
    model: ActorCritic,
    learner: int,
    projected: Projected,
    state: Tensor,
    settings: Settings,
    ensemble: EnsembleConfig,
) -> Targets:
    """One learner's values of borrowed rows, and its targets there."""
    layout, trajectory = plan.layout, borrowed.trajectory
    start = torch.zeros(1, len(state), dtype=torch.bool, device=state.device)
    output = model.evaluate(projected, layout.ids(learner, len(state) // layout.networks), state, start)
    value = _step_first(model.raw_value(output.value[0]), plan, borrowed)
    mean = _step_first(output.mean[0], plan, borrowed)[:-1]
    ids = layout.ids(learner, value.shape[1] // layout.networks)
    log_std = model.log_std.index_select(0, ids)
    log_ratio = gaussian.log_prob(borrowed.action, mean, log_std) - borrowed.log_prob
    discount = settings.at("discount", ids, value.dtype)
    if ensemble.estimator == "vtrace":
        advantage, returns = v_trace(trajectory, value, log_ratio, discount)
    else:
        if ensemble.estimator == "gae":
            smoothing = settings.at("gae_lambda", ids, value.dtype)
            advantage = off_policy_gae(trajectory, value, log_ratio, discount, smoothing)
        else:
            advantage = one_step(trajectory, value, discount)
        returns = advantage + value[:-1]
    centre = torch.ones_like(advantage)
    if ensemble.clip_centre == "old_ratio":  # limited as in the surrogate, so that a clip interval can hold it
        centre = log_ratio.clamp(max=LOG_RATIO_LIMIT).exp()
    return Targets(advantage, returns, value[:-1], centre)


def _network_first(x: Tensor, plan: Plan) -> Tensor:
    """`[T, G·n, ...]` as rows of one network after another: `[G·T·n, ...]`."""
    return x.unflatten(1, (plan.layout.networks, -1)).transpose(0, 1).flatten(0, 2)


def _step_first(x: Tensor, plan: Plan, borrowed: Rollout) -> Tensor:
    """`[G·(T+1)·n, ...]` back to `[T+1, G·n, ...]`."""
    return x.unflatten(0, (plan.layout.networks, borrowed.horizon + 1, -1)).transpose(0, 1).flatten(1, 2)


def explained_variance(value: Tensor, returns: Tensor, ranks: Ranks = ALONE) -> Tensor:
    """1 - Var(returns - values) / Var(returns) of each network, `[L, G, n]`, over all ranks: 1 if the critic
    is perfect, 0 if it is constant."""
    (left, _), (whole, _) = (ranks.std_mean(x, (0, 2)) for x in (returns - value, returns))
    return 1 - (left / whole.clamp(min=1e-6)).square().flatten()


@torch.no_grad()
def normalise_advantages(plan: Plan, advantage: Tensor, scope: str) -> Tensor:
    """Zero mean and unit (unbiased) deviation over the whole plan of a network, each group, or each policy of each
    group; `centred` takes each policy's mean away within a group and divides by the group's deviation."""
    standardise, centre = (partial(change, ranks=plan.layout.ranks) for change in (_standardise, _centre))
    if scope == "global":
        return standardise(advantage)
    own, *borrowed = advantage.split(plan.sizes, dim=2)
    if scope == "group":
        return torch.cat([standardise(part) for part in (own, *borrowed)], dim=2)
    # Own rows lie chunk by chunk over all environments, so a policy's are not contiguous.
    layout = plan.layout
    blocks = own.unflatten(2, (plan.chunks, layout.envs)).split(layout.sizes, dim=3)
    change = standardise if scope == "policy" else centre
    own = torch.cat([change(block.flatten(2)).view_as(block) for block in blocks], dim=3).flatten(2)
    pairs = advantage[:, :, plan.sizes[0] :].split([block.size for block in plan.pairs], dim=2) if plan.pairs else ()
    changed = torch.cat([own, *(change(part) for part in pairs)], dim=2)
    if scope == "policy":
        return changed
    return torch.cat([standardise(part) for part in changed.split(plan.sizes, dim=2)], dim=2)


def _centre(x: Tensor, ranks: Ranks) -> Tensor:
    return x - ranks.mean(x.mean((0, 2), keepdim=True))


def _standardise(x: Tensor, ranks: Ranks) -> Tensor:
    """Each network's `[L, G, n]` by itself, over the rows of all ranks."""
    std, mean = ranks.std_mean(x, (0, 2))
    return (x - mean) / (std + 1e-8)


@torch.no_grad()
def merge_values(
    normaliser: Normaliser, value: Tensor, returns: Tensor, ranks: Ranks = ALONE
) -> tuple[Tensor, Tensor, Tensor]:
    """Old values and returns `[L, G, S]` in the critic's units, as the reference does it: the statistics take in the
    old values, then the returns; the values are normalised in between and the returns afterwards. And `[G]`: how many
    of the returns were too far away to count in full."""

    # By the statistics before either: old values alone, at first all alike, are no measure of returns.
    limited, far = normaliser.limited(returns.flatten(1)[..., None])

    def merged(rows: Tensor) -> Tensor:
        normaliser.merge(rows, ranks)
        return normaliser(rows)[..., 0].view_as(value)

    return merged(value.flatten(1)[..., None]), merged(limited), far
