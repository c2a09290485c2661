"""Both hands by their fact tables, and states of a cube in a hand put there by hand."""

from dataclasses import dataclass
from typing import Any

import torch
from tasks.robots import limits
from tasks.states import begun, put_object, turn
from torch import Tensor

RAISED = torch.tensor([0.0, 0.0, 0.15])
"""From the goal to a cube out of the fingers' reach, though not dropped."""


@dataclass(frozen=True)
class Hand:
    """What differs between the tasks. Observations begin with J joints' angles, speeds and torques, then the cube."""

    task: str
    goal: Tensor
    start: Tensor
    """The middle of where cubes start."""
    limits: Tensor
    """`[J, 2]`"""
    driven: list[int]
    """Joints with a servo, in the order of actions."""

    @property
    def cube(self) -> int:
        """The first column of the observation that is about the cube."""
        return 3 * len(self.limits)

    def in_the_air(self, num_envs: int, *angles: float) -> Any:
        """Cubes in the air, so far from their goals."""
        env = begun(self.task, num_envs)
        put_object(env, self.goal + RAISED)
        goals = [turn((1.0, 0.0, 0.0), angle) for angle in angles or (1.0,) * num_envs]
        env.kept["goal"].copy_(torch.tensor(goals))
        return env


ALLEGRO = Hand(
    "AllegroHand",
    goal=torch.tensor([0.0, -0.2, 0.52]),
    start=torch.tensor([0.0, -0.2, 0.56]),
    limits=torch.tensor(limits("allegro_hand")).float(),
    driven=list(range(16)),
)
SHADOW = Hand(
    "ShadowHand",
    goal=torch.tensor([0.0, -0.39, 0.56]),
    start=torch.tensor([0.0, -0.39, 0.6]),
    limits=torch.tensor(limits("shadow_hand")).float(),
    driven=[joint for joint in range(24) if joint not in (5, 9, 13, 18)],  # FFJ0, MFJ0, RFJ0, LFJ0 follow
)
