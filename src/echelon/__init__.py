"""Echelon: one robot policy, trained with the help of many. Everything public is here; docs/api.md lists it."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from echelon.algorithms import Algorithm as Algorithm, register as register
    from echelon.algorithms.variants import apply_variants as apply_variants
    from echelon.commands.train import configure as configure
    from echelon.config import (
        ModelConfig as ModelConfig,
        TaskConfig as TaskConfig,
        TrainConfig as TrainConfig,
        UpdateConfig as UpdateConfig,
    )
    from echelon.console.view import NullView as NullView, PlainView as PlainView
    from echelon.envs.contract import Env as Env, Image as Image, Step as Step
    from echelon.errors import UserError as UserError
    from echelon.evaluation.evaluate import evaluate as evaluate, evaluate_every as evaluate_every
    from echelon.export.policy import load_policy as load_policy
    from echelon.runs.folder import RunFolder as RunFolder
    from echelon.runs.metrics import read_metrics as read_metrics
    from echelon.tasks import preset as preset
    from echelon.tasks.environment import make as make
    from echelon.training.callbacks import Stop as Stop, no_better_for as no_better_for, until as until
    from echelon.training.loop import train as train, train_seeds as train_seeds
    from echelon.viewing.page import replay as replay
    from echelon.viewing.video import film_every as film_every

__version__ = "0.1.0"

_PLACES = {
    "echelon.algorithms": "Algorithm register",
    "echelon.commands.train": "configure",
    "echelon.config": "ModelConfig TaskConfig TrainConfig UpdateConfig",
    "echelon.algorithms.variants": "apply_variants",
    "echelon.console.view": "NullView PlainView",
    "echelon.envs.contract": "Env Image Step",
    "echelon.errors": "UserError",
    "echelon.evaluation.evaluate": "evaluate evaluate_every",
    "echelon.export.policy": "load_policy",
    "echelon.runs.folder": "RunFolder",
    "echelon.runs.metrics": "read_metrics",
    "echelon.tasks": "preset",
    "echelon.tasks.environment": "make",
    "echelon.training.callbacks": "Stop no_better_for until",
    "echelon.training.loop": "train train_seeds",
    "echelon.viewing.page": "replay",
    "echelon.viewing.video": "film_every",
}
_PLACE_OF = {name: place for place, names in _PLACES.items() for name in names.split()}
__all__ = [*_PLACE_OF]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is asked for: torch alone takes seconds."""
    if name == "tasks":
        return import_module("echelon.tasks")
    if name not in _PLACE_OF:
        raise AttributeError(f"module 'echelon' has no attribute {name!r}")
    return getattr(import_module(_PLACE_OF[name]), name)
