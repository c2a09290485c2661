"""States of the AllegroKuka tasks put there by hand."""

import dataclasses
import math
from typing import Any

import torch
from torch import Tensor

from echelon import tasks
from echelon.tasks.allegro_kuka.task import AllegroKuka

CPU = torch.device("cpu")
REGRASPING, REORIENTATION, THROW, TWO_ARMS = (
    f"AllegroKuka{name}" for name in ("Regrasping", "Reorientation", "Throw", "TwoArmsReorientation")
)
FAMILY = (REGRASPING, REORIENTATION, THROW, TWO_ARMS)
UPRIGHT = (1.0, 0.0, 0.0, 0.0)


def begun(task: str, num_envs: int, seed: int = 0, **settings: Any) -> AllegroKuka:
    config = dataclasses.replace(tasks.info(task).preset.env, **settings)
    env = tasks.make(task, config, num_envs, CPU, seed)
    assert isinstance(env, AllegroKuka)
    env.reset()
    return env


def turn(axis: tuple[float, float, float], angle: float) -> tuple[float, ...]:
    """The quaternion w x y z of a turn about an axis of length 1."""
    return (math.cos(angle / 2), *(math.sin(angle / 2) * part for part in axis))


def put(env: AllegroKuka, position: Tensor, orientation: Any = UPRIGHT, velocity: Any = (0.0,) * 6) -> None:
    """The object at `position [N, 3]`, in the air if need be; the joints at rest where they were drawn."""
    qpos, qvel = env.engine.qpos.clone(), torch.zeros_like(env.engine.qvel)
    pose = torch.as_tensor(orientation, dtype=torch.float64).expand(len(qpos), 4)
    qpos[:, :7] = torch.cat((position.double().expand(len(qpos), 3), pose), dim=1)
    qvel[:, :6] = torch.tensor(velocity, dtype=torch.float64)
    env.engine.set_state(torch.ones(len(qpos), dtype=torch.bool), qpos, qvel)


def aim(env: AllegroKuka, position: Any, orientation: Any = UPRIGHT) -> None:
    """Goals, without telling anyone: best distances stay what they were."""
    env.kept["goal_position"].copy_(torch.as_tensor(position).expand(env.num_envs, 3))
    env.kept["goal_orientation"].copy_(torch.as_tensor(orientation).expand(env.num_envs, 4))


def idle(env: AllegroKuka) -> Tensor:
    """An action: the arm stays, the fingers go to the middle of their ranges."""
    return torch.zeros(env.num_envs, env.action_dim)
