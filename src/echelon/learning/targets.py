"""Targets of every evaluation in a plan, from one rollout, at the parameters that collected it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from echelon.config import EnsembleConfig, UpdateConfig
from echelon.learning.advantages import OffPolicy, gae, one_step, v_trace
from echelon.learning.losses import LOG_RATIO_LIMIT
from echelon.learning.plans import Plan
from echelon.models import gaussian
from echelon.models.normaliser import Normaliser
from echelon.models.population import Model
from echelon.rollout.buffer import Rollout
from echelon.rollout.layout import LEADER

Block = Callable[[Tensor, int], Tensor]
"""Takes one policy's environments out of a tensor whose given dimension runs over all of them."""


@dataclass
class Targets:
    """`[L, size]` each, in the plan's order."""

    advantage: Tensor
    returns: Tensor
    value: Tensor
    centre: Tensor
    """Where the clip interval lies: 1, or π_leader,old / π_follower,old on leader_borrows evaluations."""


@dataclass
class _Borrowed:
    """What a policy makes of rows another one collected, before any update; `[T, n]` each."""

    value: Tensor
    advantage: Tensor
    returns: Tensor
    ratio: Tensor


@torch.no_grad()
def compute_targets(
    plan: Plan,
    rollout: Rollout,
    model: Model,
    follower: Tensor,
    adversarial: Tensor | None,
    update: UpdateConfig,
    ensemble: EnsembleConfig,
) -> Targets:
    """Raw (unnormalised) targets. `adversarial` `[T, N]` is added to the rewards of own rows only."""
    layout = plan.layout
    trajectory = rollout.trajectory
    if adversarial is not None:
        trajectory = replace(trajectory, reward=trajectory.reward + adversarial)
    advantage = gae(trajectory, rollout.value, update.discount, update.gae_lambda)
    own = _Borrowed(rollout.value[:-1], advantage, advantage + rollout.value[:-1], torch.ones_like(advantage))
    borrowed = pulled = None
    if plan.borrowed:
        block = partial(layout.follower_block, follower=follower)
        (borrowed,) = _borrow(rollout, model, block, (LEADER,), update.discount, ensemble.estimator)
    if plan.pulled:
        followers = range(1, layout.policies)
        pulled = _borrow(rollout, model, layout.leader_block, followers, update.discount, ensemble.estimator)

    def collect(name: str) -> Tensor:
        return plan.in_order(
            getattr(own, name),
            getattr(borrowed, name) if borrowed else None,
            torch.stack([getattr(copy, name) for copy in pulled]) if pulled else None,
        )

    advantage = collect("advantage")
    centre = collect("ratio") if ensemble.clip_centre == "old_ratio" else torch.ones_like(advantage)
    return Targets(advantage, collect("returns"), collect("value"), centre)


def _borrow(
    rollout: Rollout, model: Model, block: Block, policies: Iterable[int], discount: float, estimator: str
) -> list[_Borrowed]:
    """One block's rows under each of `policies`. Environment rewards only.

    A recurrent network takes a single step from the collector's stored state at every row; nothing is unrolled anew.
    """
    shape = block(rollout.value, 1).shape
    obs = {name: block(x, 1).flatten(0, 1)[None] for name, x in rollout.obs.items()}
    state = block(rollout.state, 1).flatten(0, 1)
    start = torch.zeros(1, state.shape[0], dtype=torch.bool, device=state.device)
    trajectory = rollout.trajectory.map(lambda x: block(x, 1))
    action, behaviour = block(rollout.action, 1), block(rollout.log_prob, 1)
    projected = model.project(obs)
    results = []
    for policy in policies:
        ids = torch.full((state.shape[0],), policy, device=state.device)
        output = model.evaluate(projected, ids, state, start)
        value = model.raw_value(output.value, ids).view(shape)
        mean = output.mean.view(*shape, -1)[:-1]
        log_ratio = gaussian.log_prob(action, mean, model.log_std[policy]) - behaviour
        if estimator == "vtrace":
            off = v_trace(trajectory, value, log_ratio, discount)
        else:
            advantage = one_step(trajectory, value, discount)
            off = OffPolicy(advantage, advantage + value[:-1])
        ratio = log_ratio.clamp(max=LOG_RATIO_LIMIT).exp()  # as the surrogate's, so that a clip interval can hold it
        results.append(_Borrowed(value[:-1], off.advantage, off.returns, ratio))
    return results


@torch.no_grad()
def normalise_advantages(plan: Plan, advantage: Tensor, scope: str) -> Tensor:
    """Zero mean and unit (unbiased) deviation over the whole plan, each group, or each policy of each group."""
    columns = [plan.size]
    layout, chunks = plan.layout, plan.chunks
    if scope == "group":
        columns = [n for n in (plan.own, plan.borrowed, plan.pulled) if n]
    if scope == "policy":
        # Own rows lie chunk by chunk over all environments, so a policy's are not contiguous: normalise by block.
        own = advantage[:, : plan.own].unflatten(1, (chunks, layout.num_envs))
        own = torch.cat([_standardise(part, (0, 1, 2)) for part in own.split(layout.sizes, dim=2)], dim=2).flatten(1)
        rest = [plan.borrowed] * bool(plan.borrowed)
        rest += [plan.pulled // layout.followers] * layout.followers if plan.pulled else []
        parts = advantage[:, plan.own :].split(rest, dim=1) if rest else ()
        return torch.cat([own, *(_standardise(part, (0, 1)) for part in parts)], dim=1)
    return torch.cat([_standardise(part, (0, 1)) for part in advantage.split(columns, dim=1)], dim=1)


def _standardise(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    std, mean = torch.std_mean(x, dims, correction=min(1, x.numel() - 1))  # one row has no unbiased deviation
    return (x - mean) / (std + 1e-8)


@torch.no_grad()
def normalise_values(normaliser: Normaliser, value: Tensor, returns: Tensor) -> tuple[Tensor, Tensor]:
    """Old values and returns in the critic's units, as the reference does it: the statistics take in the old values,
    then the returns; the values are normalised in between and the returns afterwards."""
    normaliser.merge(value)
    value = normaliser(value)
    normaliser.merge(returns)
    return value, normaliser(returns)
