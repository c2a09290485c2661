"""Both hands by their fact tables, and states of a cube in a hand put there by hand."""

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from tasks.robots import limits
from torch import Tensor

from echelon.tasks import info
from echelon.tasks.in_hand.task import InHand

CPU = torch.device("cpu")


def turn(axis: tuple[float, float, float], angle: float) -> Tensor:
    """The quaternion w x y z of a turn about an axis of length 1."""
    return torch.tensor([math.cos(angle / 2), *(math.sin(angle / 2) * part for part in axis)], dtype=torch.float64)


UPRIGHT = turn((0.0, 0.0, 1.0), 0.0)


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

    def begun(self, num_envs: int, **settings: Any) -> Any:
        env = info(self.task).task(replace(info(self.task).preset.env, **settings), num_envs, CPU, 0)
        env.reset()
        return env

    def in_the_air(self, num_envs: int, *angles: float) -> Any:
        """Cubes out of the fingers' reach, though not dropped, so far from their goals."""
        env = self.begun(num_envs)
        put(env, (self.goal + torch.tensor([0.0, 0.0, 0.15])).expand(num_envs, 3), UPRIGHT)
        aim(env, torch.stack([turn((1.0, 0.0, 0.0), angle) for angle in angles or (1.0,) * num_envs]))
        return env


ALLEGRO = Hand(
    "AllegroHand",
    goal=torch.tensor([0.0, -0.2, 0.52]),
    start=torch.tensor([0.0, -0.2, 0.56]),
    limits=torch.tensor(limits("allegro_hand")).float(),
    driven=list(range(16)),
)
FINGER = ((-0.349, 0.349), (0.0, 1.571), (0.0, 1.571), (0.0, 1.571))
THUMB = ((-1.047, 1.047), (0.0, 1.222), (-0.209, 0.209), (-0.524, 0.524), (-1.571, 0.0))
SHADOW = Hand(
    "ShadowHand",
    goal=torch.tensor([0.0, -0.39, 0.56]),
    start=torch.tensor([0.0, -0.39, 0.6]),
    limits=torch.tensor([(-0.489, 0.14), (-0.698, 0.489), *FINGER * 3, (0.0, 0.785), *FINGER, *THUMB]),
    driven=[joint for joint in range(24) if joint not in (5, 9, 13, 18)],  # FFJ0, MFJ0, RFJ0, LFJ0 follow
)


def put(env: InHand, position: Tensor, orientation: Tensor) -> None:
    """The cube at `position [N, 3]`, turned by `orientation [N, 4]` w x y z; the joints at rest as they were drawn."""
    qpos = env.engine.qpos.clone()
    qpos[:, env.cube[0]] = torch.cat((position.double(), orientation.double().expand(len(qpos), 4)), dim=1)
    env.engine.set_state(torch.ones(len(qpos), dtype=torch.bool), qpos, torch.zeros_like(env.engine.qvel))


def aim(env: InHand, goal: Tensor) -> None:
    """Goal orientations `[N, 4]` or `[4]`, w x y z."""
    env.kept["goal"].copy_(goal.float().expand(env.num_envs, 4))
