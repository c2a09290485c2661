"""Settings to start from, a file per family of tasks: the paper's ten, and the quick ones.

A family is imported when one of its tasks is asked for. None of this imports torch.
"""

import contextlib
from importlib import import_module
from typing import Any

from echelon.config import ForeignSettings, TrainConfig, from_dict
from echelon.errors import UserError, nearest

FAMILIES = {
    "ShadowHand": "hands",
    "AllegroHand": "hands",
    "AllegroKukaRegrasping": "allegro_kuka",
    "AllegroKukaReorientation": "allegro_kuka",
    "AllegroKukaThrow": "allegro_kuka",
    "AllegroKukaTwoArmsReorientation": "allegro_kuka",
    "FrankaCubePush": "franka",
    "FrankaCubeStack": "franka",
    "Humanoid": "locomotion",
    "Anymal": "locomotion",
    "CartpoleSwingup": "quick",
    "Hopper": "quick",
    "DeceptiveReach": "quick",
}
"""Module of this package that holds each task's preset."""


def names() -> tuple[str, ...]:
    """The tasks that have one."""
    return tuple(FAMILIES)


def preset(task: str) -> TrainConfig:
    """The settings of a task, for CPO with six policies; other algorithms use the same ones.

    `task` is the name of a built-in one, or where another comes from: `gymnasium:Walker2d-v5`, `mypackage.module:make`.
    """
    if task not in FAMILIES:
        from echelon.envs.sources import is_source, registered
        from echelon.presets.foreign import foreign_preset

        if is_source(task):
            return foreign_preset(task)
        hint = nearest(task, [*FAMILIES, *registered()]) or "; echelon tasks lists them"
        raise UserError(f"{task} is not a task{hint}")
    return import_module(f"{__name__}.{FAMILIES[task]}").PRESETS[task]


def stored_config(data: dict[str, Any]) -> TrainConfig:
    """Settings read back from JSON. The task's preset lends the classes, and the defaults of newer fields."""
    if not isinstance(data.get("task"), str):
        raise UserError("it names no task")
    template = TrainConfig(env=ForeignSettings())  # of a task whose classes only its own code knows
    if not data.get("source"):
        with contextlib.suppress(UserError):
            template = preset(data["task"])
    return from_dict(template, data)
