"""States of a cube in a hand put there by hand, for the tests of both hands."""

import math
from typing import Any, TypeVar

import torch
from torch import Tensor

from echelon.tasks.in_hand import InHand

T = TypeVar("T", bound=InHand[Any])
CPU = torch.device("cpu")


def turn(axis: tuple[float, float, float], angle: float) -> Tensor:
    """The quaternion w x y z of a turn about an axis of length 1."""
    return torch.tensor([math.cos(angle / 2), *(math.sin(angle / 2) * part for part in axis)], dtype=torch.float64)


def begun(task: type[T], config: Any, num_envs: int, seed: int = 0) -> T:
    env = task(config, num_envs, CPU, seed)
    env.reset()
    return env


def put(env: InHand[Any], position: Tensor, orientation: Tensor, velocity: Tensor | None = None) -> None:
    """The cube at `position [N, 3]`, turned by `orientation [N, 4]` w x y z; the joints at rest as they were drawn."""
    qpos, qvel = env.engine.qpos.clone(), torch.zeros_like(env.engine.qvel)
    qpos[:, env.cube[0]] = torch.cat((position.double(), orientation.double().expand(len(qpos), 4)), dim=1)
    if velocity is not None:
        qvel[:, env.cube[1]] = velocity.double()
    env.engine.set_state(torch.ones(len(qpos), dtype=torch.bool), qpos, qvel)


def aim(env: InHand[Any], goal: Tensor) -> None:
    """Goal orientations `[N, 4]` or `[4]`, w x y z."""
    env.kept["goal"].copy_(goal.float().expand(env.num_envs, 4))
