"""Tasks by name. Every folder here is a task or a family of them, found without a list: see `TaskInfo`.

A task's class is imported when its environments are made. Names, settings and presets need no torch.
"""

import contextlib
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

from echelon import algorithms
from echelon.algorithms import BUILT_IN, CpoTrainConfig, Preset, converted, read_settings
from echelon.config import TaskInfo, TrainConfig
from echelon.config.schema import ForeignSettings, tasks_in
from echelon.errors import UserError, nearest, require_package
from echelon.tasks.settings import MujocoTaskConfig

if TYPE_CHECKING:
    import torch

    from echelon.config import TaskConfig
    from echelon.envs.contract import Env, MakeEnv


_FOLDERS = [name for _, name, is_folder in iter_modules(__path__) if is_folder and not name.startswith("_")]
TASKS = dict(sorted(task for folder in _FOLDERS for task in tasks_in(f"{__name__}.{folder}").items()))
"""The built-in tasks by name, in alphabetical order."""


def names() -> tuple[str, ...]:
    """Names of the built-in tasks."""
    return tuple(TASKS)


def info(task: str) -> TaskInfo:
    """The built-in task of this name."""
    if task not in TASKS:
        from echelon.envs.sources import registered

        of_gymnasium = re.fullmatch(r"[\w-]+-v\d+", task)
        hint = f"; did you mean gymnasium:{task}?" if of_gymnasium else nearest(task, [*TASKS, *registered()])
        if Path(task, "settings.py").is_file():  # as echelon new-task writes it
            folder = Path(task).name
            hint = f"; its folder and its class name it, as in {folder}:{folder.title().replace('_', '')}"
        raise UserError(f"{task} is not a task{hint or '; echelon tasks lists them'}")
    return TASKS[task]


def preset(task: str) -> Preset:
    """A task's settings for all built-in algorithms. CPO is chosen, and PPO where the environment is not built in.

    `configure` has them as `echelon train` does, changed by the variants that trained best.
    `task` is the name of a built-in one, or where another comes from: `gymnasium:Walker2d-v5`, `mypackage.module:make`.
    """
    if task not in TASKS:
        from echelon.envs.sources import foreign_preset, is_source

        if is_source(task):
            return converted(foreign_preset(task), Preset)
    return converted(info(task).preset, Preset)


def best_variants(config: TrainConfig, *, algo_chosen: bool) -> tuple[str, ...]:
    """Variants that a task's default settings start from; an algorithm the user chose (`algo_chosen`) decides alone."""
    if config.preset == "paper":
        return ()
    if not algo_chosen:
        return TASKS[config.task].best if built_in(config) else ()
    adversary = isinstance(config, CpoTrainConfig) and config.algo == "cpo" and config.adversary.coef
    return ("no_adversary",) if adversary else ()


def stored_config(data: dict[str, Any]) -> TrainConfig:
    """Settings read from JSON. The task's preset supplies the classes, and the defaults of newer fields."""
    if not isinstance(data.get("task"), str):
        raise UserError("it names no task")
    template = TrainConfig(env=ForeignSettings())  # for a task whose classes only its own code knows
    if not data.get("source"):
        with contextlib.suppress(UserError):
            template = preset(data["task"])
    algo = data.get("algo", template.algo)
    known = isinstance(algo, str) and (algo in BUILT_IN or algo in algorithms.REGISTERED)
    return read_settings(template, data, algorithms.settings_class(algo) if known else None)


def built_in(config: TrainConfig) -> bool:
    """Whether a run's environments are those of a built-in task."""
    return config.source is None and config.task in TASKS


def several_seeds(config: TrainConfig) -> bool:
    """Whether several seeds can train in the environments of one task: built-in tasks on MuJoCo."""
    return built_in(config) and isinstance(TASKS[config.task].preset.env, MujocoTaskConfig)


def maker(config: TrainConfig, *, spread_clocks: bool = False, blocks: int = 1) -> "MakeEnv":
    """The function that builds a run's environments, of a built-in task or of another source, which knows no blocks."""
    if built_in(config):
        return partial(make, config.task, config.env, spread_clocks=spread_clocks, blocks=blocks)

    from echelon.envs import sources

    return sources.maker(config, spread_clocks=spread_clocks)


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
    """`num_envs` copies of a task, which several seeds can share on MuJoCo.

    `spread_clocks` starts first episodes at random times of their clock: for training, not for evaluation. The copies
    are `blocks` of equal size, which all draw the same random numbers.
    """
    known = info(task)
    settings = type(known.preset.env)
    if issubclass(settings, MujocoTaskConfig):
        for package in ("mujoco", "mujoco.batch") if device.type == "cpu" else ("mujoco",):  # MuJoCo 4 has `batch`
            require_package(package, task, "mujoco")
    if not isinstance(config, settings):
        raise UserError(f"{task} takes its settings as {settings.__name__}, not {type(config).__name__}")
    return known.task(config, num_envs, device, seed, spread_clocks=spread_clocks, blocks=blocks)
