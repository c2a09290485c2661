"""The reward: for new best distances, first of the fingers to the object, then of the object to the goal.

Only an improvement over the best distance so far is rewarded, so that nothing is rewarded twice.
"""

from dataclasses import dataclass

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


@dataclass(frozen=True)
class Seen:
    """The quantities the reward is computed from."""

    height: Tensor
    """`[N]`: height of the object's centre."""
    reach: Tensor
    """`[N, F]`: distance of each fingertip from the object's centre."""
    distance: Tensor
    """`[N]`: largest distance of a keypoint from the goal's."""
    arm_speed: Tensor
    """`[N]`: sum of absolute joint velocities."""
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
