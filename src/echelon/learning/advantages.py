"""Targets: how much better an action was than the value function thought. Pure functions of `[T, n]` tensors.

Truncated and terminated stay apart. A terminated state is worth nothing; an episode cut by its time limit is worth
`final_value`, the value of the observation before the reset. In both cases nothing flows back from the next episode.
Values have one row more than rewards: `value[T]` is that of the state after the last step.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from echelon.rollout.trajectory import Trajectory


def gae(trajectory: Trajectory, value: Tensor, discount: float | Tensor, smoothing: float | Tensor) -> Tensor:
    """Generalised advantage estimate `[T, n]`; discount and smoothing may be per environment, `[n]`.

    δ_t = r_t + γ V_{t+1} - V_t and A_t = δ_t + γτ A_{t+1}, each cut where an episode ends.
    """
    live = trajectory.live
    delta = trajectory.bootstrapped_reward(discount) + discount * value[1:] * live - value[:-1]
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


@dataclass(frozen=True)
class OffPolicy:
    """Targets of a policy on rows another one collected; both `[T, n]`."""

    advantage: Tensor
    returns: Tensor


def v_trace(trajectory: Trajectory, value: Tensor, log_ratio: Tensor, discount: float | Tensor) -> OffPolicy:
    """V-trace with both truncation levels at 1 (Espeholt et al. 2018, equations 1 and 2).

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
    return OffPolicy(reward + discount * next_target * live - value[:-1], target)
