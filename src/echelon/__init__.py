"""Echelon: one robot policy, trained with the help of many."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from echelon.config import TrainConfig
    from echelon.evaluation.evaluate import evaluate
    from echelon.export.policy import load_policy
    from echelon.presets import preset
    from echelon.runs.folder import RunFolder
    from echelon.training.loop import train

__version__ = "0.1.0"

__all__ = ["RunFolder", "TrainConfig", "evaluate", "load_policy", "preset", "train"]

_PLACES = {
    "RunFolder": "echelon.runs.folder",
    "TrainConfig": "echelon.config",
    "evaluate": "echelon.evaluation.evaluate",
    "load_policy": "echelon.export.policy",
    "preset": "echelon.presets",
    "train": "echelon.training.loop",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is asked for: torch alone takes seconds."""
    if name not in _PLACES:
        raise AttributeError(f"module 'echelon' has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)
