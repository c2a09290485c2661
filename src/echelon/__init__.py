"""Echelon: one robot policy, trained with the help of many. Everything public is here; docs/api.md lists it."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from echelon.algorithms import Algorithm, register
    from echelon.algorithms.variants import apply_variants
    from echelon.config import ModelConfig, TaskConfig, TrainConfig, UpdateConfig
    from echelon.console.view import NullView, PlainView
    from echelon.envs.contract import Env, Image, Step
    from echelon.errors import UserError
    from echelon.evaluation.evaluate import evaluate, evaluate_every
    from echelon.export.policy import load_policy
    from echelon.runs.folder import RunFolder
    from echelon.runs.metrics import read_metrics
    from echelon.tasks import preset
    from echelon.tasks.environment import make
    from echelon.training.callbacks import Stop, no_better_for, until
    from echelon.training.loop import train, train_seeds
    from echelon.viewing.during import film_every
    from echelon.viewing.page import replay

__version__ = "0.1.0"

_PLACES = {
    "echelon.algorithms": ("Algorithm", "register"),
    "echelon.config": ("ModelConfig", "TaskConfig", "TrainConfig", "UpdateConfig"),
    "echelon.algorithms.variants": ("apply_variants",),
    "echelon.console.view": ("NullView", "PlainView"),
    "echelon.envs.contract": ("Env", "Image", "Step"),
    "echelon.errors": ("UserError",),
    "echelon.evaluation.evaluate": ("evaluate", "evaluate_every"),
    "echelon.export.policy": ("load_policy",),
    "echelon.runs.folder": ("RunFolder",),
    "echelon.runs.metrics": ("read_metrics",),
    "echelon.tasks": ("preset",),
    "echelon.tasks.environment": ("make",),
    "echelon.training.callbacks": ("Stop", "no_better_for", "until"),
    "echelon.training.loop": ("train", "train_seeds"),
    "echelon.viewing.during": ("film_every",),
    "echelon.viewing.page": ("replay",),
}
_PLACE_OF = {name: place for place, names in _PLACES.items() for name in names}

__all__ = [
    "Algorithm",
    "Env",
    "Image",
    "ModelConfig",
    "NullView",
    "PlainView",
    "RunFolder",
    "Step",
    "Stop",
    "TaskConfig",
    "TrainConfig",
    "UpdateConfig",
    "UserError",
    "apply_variants",
    "evaluate",
    "evaluate_every",
    "film_every",
    "load_policy",
    "make",
    "no_better_for",
    "preset",
    "read_metrics",
    "register",
    "replay",
    "train",
    "train_seeds",
    "until",
]


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is asked for: torch alone takes seconds."""
    if name == "tasks":
        return import_module("echelon.tasks")
    if name not in _PLACE_OF:
        raise AttributeError(f"module 'echelon' has no attribute {name!r}")
    return getattr(import_module(_PLACE_OF[name]), name)
