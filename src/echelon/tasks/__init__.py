"""Tasks by name. A new one is a module with its class, settings in a module without torch, and a line here.

A task's module is imported when the task is asked for, so naming the tasks costs nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from echelon.errors import UserError, nearest, require_package

if TYPE_CHECKING:
    import torch

    from echelon.config import TaskConfig, TrainConfig
    from echelon.envs.contract import Env, MakeEnv


class TaskClass(Protocol):
    """The constructor of a task. `config` is an instance of the task's own config class."""

    def __call__(
        self,
        config: Any,
        num_envs: int,
        device: "torch.device",
        seed: Any,
        *,
        spread_clocks: bool = False,
        blocks: int = 1,
    ) -> "Env": ...


@dataclass(frozen=True)
class TaskInfo:
    """Where a task is defined, and its description."""

    module: str
    """Module of this package."""
    class_name: str
    description: str
    """One line for `echelon tasks`."""
    config_name: str | None = None
    """The class's name and `Config` unless given."""
    mujoco: bool = True
    """Whether MuJoCo simulates it."""

    @property
    def task(self) -> TaskClass:
        return self._load(self.class_name)

    @property
    def config(self) -> "type[TaskConfig]":
        return self._load(self.config_name or f"{self.class_name}Config")

    def _load(self, name: str) -> Any:
        return getattr(import_module(f"{__name__}.{self.module}"), name)


TASKS: dict[str, TaskInfo] = {
    info.class_name: info
    for info in (
        TaskInfo("shadow_hand", "ShadowHand", "turn a cube on the Shadow hand to goal after goal"),
        TaskInfo("allegro_hand", "AllegroHand", "turn a cube on the Allegro hand likewise"),
        TaskInfo(
            "allegro_kuka.family",
            "AllegroKukaRegrasping",
            "grasp cuboid after cuboid from a table with an Allegro hand on a KUKA arm",
        ),
        TaskInfo(
            "allegro_kuka.family",
            "AllegroKukaReorientation",
            "bring a cuboid to pose after pose with that hand and arm",
        ),
        TaskInfo("allegro_kuka.family", "AllegroKukaThrow", "throw cuboids into buckets with them"),
        TaskInfo(
            "allegro_kuka.family",
            "AllegroKukaTwoArmsReorientation",
            "bring a cuboid to poses on both sides of a table with two of them",
        ),
        TaskInfo("franka_push", "FrankaCubePush", "slide a cube to a goal with a Franka arm"),
        TaskInfo("franka_stack", "FrankaCubeStack", "put one cube on another with that arm"),
        TaskInfo("humanoid", "Humanoid", "run on two legs without falling"),
        TaskInfo("anymal", "Anymal", "walk on four legs at a commanded velocity"),
        TaskInfo("cartpole", "CartpoleSwingup", "swing a pole up on a cart and hold it there", "CartpoleConfig"),
        TaskInfo("hopper", "Hopper", "hop forward on one leg without falling"),
        TaskInfo("deceptive_reach", "DeceptiveReach", "go round a wall that the dense reward runs into", mujoco=False),
    )
}


def info(task: str) -> TaskInfo:
    """The task of this name."""
    if task not in TASKS:
        raise UserError(f"{task} is not a task{nearest(task, TASKS)} (known: {', '.join(TASKS)})")
    return TASKS[task]


def built_in(config: "TrainConfig") -> bool:
    """Whether a run's environments are those of a task of this package."""
    return config.source is None and config.task in TASKS


def maker(config: "TrainConfig", *, spread_clocks: bool = False) -> "MakeEnv":
    """The function that builds a run's environments, of a built-in task or of another source."""
    if built_in(config):
        return partial(make, config.task, config.env, spread_clocks=spread_clocks)

    from echelon.envs import sources

    return sources.maker(config, spread_clocks=spread_clocks)


def makes_shares(config: "TrainConfig") -> bool:
    """Whether several seeds can share the environments of one task: those that are built in, on MuJoCo."""
    return built_in(config) and TASKS[config.task].mujoco


def make(
    task: str,
    config: "TaskConfig",
    num_envs: int,
    device: "torch.device",
    seed: "int | Sequence[int]",
    *,
    spread_clocks: bool = False,
    blocks: int = 1,
) -> "Env":
    """`num_envs` copies of a task. Several seeds share those of a task on MuJoCo.

    `spread_clocks` starts first episodes at random times of their clock: for training, not for evaluation. The copies
    are `blocks` of equal size, in each of which the same happens by chance.
    """
    known = info(task)
    if known.mujoco:
        for package in ("mujoco", "mujoco.batch") if device.type == "cpu" else ("mujoco",):  # `batch` is of MuJoCo 4
            require_package(package, task, "mujoco")
    if not isinstance(config, known.config):
        raise UserError(f"{task} takes its settings as {known.config.__name__}, not {type(config).__name__}")
    return known.task(config, num_envs, device, seed, spread_clocks=spread_clocks, blocks=blocks)
