"""The reward: for new best distances, first of the fingers to the object, then of the object to the goal.

Only an improvement over the best distance so far is rewarded, so that nothing is rewarded twice. How near a goal is to
be reached is a tolerance that shrinks with successes.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from echelon.tasks.allegro_kuka.settings import AllegroKukaConfig

START_HEIGHT = 0.63
"""Height of the object's centre at the start, in metres, for every size."""
HEIGHT_OFFSET, LIFTED_HEIGHT, MOST_LIFT = 0.05, 0.15, 0.5
"""In metres: offset of the height above the start; height of a lifted object; largest rewarded height."""
HELD_HEIGHT = START_HEIGHT - HEIGHT_OFFSET + LIFTED_HEIGHT
"""Height above which the object's centre is lifted, 0.73 m."""
NEAR = 1.5
"""Factor of the keypoints' distance from the centre over the corners', and of the threshold over the tolerance."""
MOST_REACH, MOST_APPROACH = 10.0, 100.0
"""Largest progress of a step that is rewarded, in metres."""

TERMS = ("reach", "lift", "lift_bonus", "keypoint", "goal", "arm_speed", "hand_speed")
"""Names of the reward's terms."""


class Seen(NamedTuple):
    """The quantities the reward is computed from, `[N]` but for `reach`."""

    height: Tensor
    """Height of the object's centre."""
    reach: Tensor
    """`[N, F]`: distance of each fingertip from the object's centre."""
    distance: Tensor
    """Largest distance of a keypoint from the goal's."""
    arm_speed: Tensor
    """Sum of absolute joint velocities."""
    hand_speed: Tensor


class Progress:
    """Best distances and flags of each environment's current object and goal, updated in place."""

    def __init__(self, num_envs: int, fingertips: int, device: torch.device) -> None:
        self.lifted = torch.zeros(num_envs, dtype=torch.bool, device=device)
        self.best_reach = torch.zeros(num_envs, fingertips, device=device)
        self.best_distance = torch.zeros(num_envs, device=device)
        self.near_steps = torch.zeros(num_envs, dtype=torch.int64, device=device)
        """Steps near this goal, not necessarily in a row."""

    def new_object(self, mask: Tensor, reach: Tensor) -> None:
        """Reset for objects that were placed again in `mask [N]`, at `reach [N, F]` from the fingertips."""
        self.lifted &= ~mask
        self.best_reach.copy_(torch.where(mask[:, None], reach, self.best_reach))

    def new_goal(self, mask: Tensor, distance: Tensor) -> None:
        """Reset for new goals in `mask [N]`, at `distance [N]`."""
        self.near_steps.masked_fill_(mask, 0)
        self.best_distance.copy_(torch.where(mask, distance, self.best_distance))

    def pay(self, seen: Seen, tolerance: Tensor, weights: AllegroKukaConfig) -> tuple[dict[str, Tensor], Tensor]:
        """Terms of the reward by name, and `[N]` bool: goal reached. The order of updates matters."""
        height = HEIGHT_OFFSET + seen.height - START_HEIGHT
        lifted = self.lifted | (height > LIFTED_HEIGHT)
        first = lifted & ~self.lifted
        self.lifted.copy_(lifted)

        nearer = (self.best_reach - seen.reach).clamp(0.0, MOST_REACH).sum(dim=1)
        self.best_reach.copy_(torch.minimum(self.best_reach, seen.reach))
        closer = (self.best_distance - seen.distance).clamp(0.0, MOST_APPROACH)
        self.best_distance.copy_(torch.minimum(self.best_distance, seen.distance))

        near = seen.distance <= NEAR * tolerance
        self.near_steps += near
        terms = {
            "reach": weights.reach_weight * (nearer * ~lifted if weights.reach_until_lifted else nearer),
            "lift": weights.lift_weight * height.clamp(0.0, MOST_LIFT) * ~lifted,
            "lift_bonus": weights.lift_bonus * first,
            "keypoint": weights.keypoint_weight * closer * lifted,
            "goal": weights.goal_bonus / weights.success_steps * near,
            "arm_speed": weights.arm_speed_weight * seen.arm_speed,
            "hand_speed": weights.hand_speed_weight * seen.hand_speed,
        }
        return terms, self.near_steps >= weights.success_steps


class Tolerance:
    """The success tolerance, one for all environments of a seed. All is computed on the device.

    It shrinks by a factor, down to a target, when some control steps have passed since the last change and the mean
    number of successes per episode is high enough.
    """

    def __init__(self, config: AllegroKukaConfig, device: torch.device, seeds: int = 1) -> None:
        self.config = config
        self._shape = () if seeds == 1 else (seeds,)
        self.value = torch.full(self._shape, config.tolerance, device=device)
        self.steps = torch.zeros(self._shape, dtype=torch.int64, device=device)
        """Control steps since the tolerance last changed."""
        self.fixed = False
        """Whether it no longer changes, for evaluation."""
        self.mean_of_ranks: Callable[[Tensor], Tensor] = lambda x: x
        """The mean over all ranks, each with its share of the environments."""

    def advance(self, last_successes: Tensor) -> None:
        """Advance by one control step; `last_successes [N]` are those of each environment's last finished episode."""
        if self.fixed:
            return
        config = self.config
        self.steps += 1
        successes = self.mean_of_ranks(last_successes.view(*self._shape, -1).mean(-1))
        due = (self.steps >= config.tolerance_interval) & (successes >= config.tolerance_successes)
        smaller = (config.tolerance_shrink * self.value).clamp(config.target_tolerance, config.tolerance)
        self.value.copy_(torch.where(due, smaller, self.value))
        self.steps.masked_fill_(due, 0)

    def objective(self, successes: Tensor) -> Tensor:
        """`[N]`: a score of episodes with `successes [N]` that is comparable across tolerances.

        The progress of the tolerance counts from 0 to 1; successes count in full only at the target.
        """
        start, target = self.config.tolerance, self.config.target_tolerance
        value = self.of_each(len(successes))
        gained = (start - value) / (start - target) if start > target else torch.ones_like(value)
        return gained + torch.where(value > target, 0.01, 1.0) * successes

    def of_each(self, num_envs: int) -> Tensor:
        """`[N]`: that of each environment."""
        return self.value.view(-1, 1).expand(-1, num_envs // self.value.numel()).reshape(-1)
