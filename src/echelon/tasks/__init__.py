"""Tasks by name. A new one is a class, its config, and a line here."""

from dataclasses import dataclass
from typing import Any, Protocol

import torch

from echelon.config import TaskConfig
from echelon.envs.contract import Env
from echelon.errors import UserError, nearest
from echelon.tasks.allegro_hand import AllegroHand, AllegroHandConfig
from echelon.tasks.anymal import Anymal, AnymalConfig
from echelon.tasks.cartpole import CartpoleConfig, CartpoleSwingup
from echelon.tasks.deceptive_reach import DeceptiveReach, DeceptiveReachConfig
from echelon.tasks.hopper import Hopper, HopperConfig
from echelon.tasks.humanoid import Humanoid, HumanoidConfig
from echelon.tasks.shadow_hand import ShadowHand, ShadowHandConfig


class TaskClass(Protocol):
    """How a task is built. `config` is an instance of the task's own config class."""

    def __call__(
        self, config: Any, num_envs: int, device: torch.device, seed: int, *, spread_clocks: bool = False
    ) -> Env: ...


@dataclass(frozen=True)
class TaskInfo:
    """What is known of a task before it is built."""

    task: TaskClass
    config: type[TaskConfig]
    description: str
    """One line for `echelon tasks`."""


TASKS: dict[str, TaskInfo] = {
    "Humanoid": TaskInfo(Humanoid, HumanoidConfig, "run on two legs without falling"),
    "Anymal": TaskInfo(Anymal, AnymalConfig, "walk on four legs at a commanded velocity"),
    "ShadowHand": TaskInfo(ShadowHand, ShadowHandConfig, "turn a cube on the Shadow hand to goal after goal"),
    "AllegroHand": TaskInfo(AllegroHand, AllegroHandConfig, "turn a cube on the Allegro hand to goal after goal"),
    "CartpoleSwingup": TaskInfo(CartpoleSwingup, CartpoleConfig, "swing a pole up on a cart and hold it there"),
    "Hopper": TaskInfo(Hopper, HopperConfig, "hop forward on one leg without falling"),
    "DeceptiveReach": TaskInfo(DeceptiveReach, DeceptiveReachConfig, "go round a wall that the dense reward runs into"),
}


def info(task: str) -> TaskInfo:
    """The task of this name."""
    if task not in TASKS:
        raise UserError(f"{task} is not a task{nearest(task, TASKS)} (known: {', '.join(TASKS)})")
    return TASKS[task]


def make(
    task: str, config: TaskConfig, num_envs: int, device: torch.device, seed: int, *, spread_clocks: bool = False
) -> Env:
    """`num_envs` copies of a task.

    `spread_clocks` starts first episodes at random times of their clock: for training, not for evaluation.
    """
    known = info(task)
    if not isinstance(config, known.config):
        raise UserError(f"{task} takes its settings as {known.config.__name__}, not {type(config).__name__}")
    return known.task(config, num_envs, device, seed, spread_clocks=spread_clocks)
