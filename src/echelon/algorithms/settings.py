"""Which settings an algorithm has, without importing torch.

Settings that every algorithm reads are `TrainConfig`. An algorithm with settings of its own derives a class from it:
here, in a file beside the algorithm's, or anywhere else for one from outside.
"""

from dataclasses import dataclass, fields
from typing import Annotated, Any, TypeVar

import tyro

from echelon.algorithms.cpo_settings import CpoTrainConfig
from echelon.algorithms.pbt_settings import PbtTrainConfig
from echelon.config import ForeignTrainConfig, TrainConfig, from_dict, with_tuples

C = TypeVar("C", bound=TrainConfig)

BUILT_IN: dict[str, type[TrainConfig]] = {
    "ppo": TrainConfig,
    "pbt": PbtTrainConfig,
    "sapg": TrainConfig,
    "cpo": CpoTrainConfig,
}
"""Settings of the built-in algorithms; each algorithm is a file of this folder by its name."""


@dataclass(frozen=True)
class Preset(CpoTrainConfig, PbtTrainConfig):
    """Settings of a task for all built-in algorithms; a run keeps those of the one that is chosen."""

    algo: Annotated[str, tyro.conf.arg(metavar="{" + ",".join(BUILT_IN) + "}")] = "cpo"
    """Algorithm: a built-in one, or one that is installed or registered."""


def converted(config: TrainConfig, kind: type[C]) -> C:
    """The settings in another class: settings it lacks are dropped, settings it adds have their defaults."""
    shared = {field.name: getattr(config, field.name) for field in fields(kind) if hasattr(config, field.name)}
    return from_dict(kind(**shared), config.foreign if isinstance(config, ForeignTrainConfig) else {})


def read_settings(template: TrainConfig, data: dict[str, Any], kind: type[TrainConfig] | None) -> TrainConfig:
    """Stored settings over those of `template`, in the class of their algorithm; None if that is not installed.

    A preset may have been stored before its algorithm's settings were taken out of it.
    """
    if kind is not None:
        return converted(from_dict(converted(template, Preset if issubclass(Preset, kind) else kind), data), kind)
    known = {field.name for field in fields(TrainConfig)}
    shared = from_dict(converted(template, ForeignTrainConfig), {key: x for key, x in data.items() if key in known})
    foreign = {key: with_tuples(value) for key, value in data.items() if key not in known}
    return ForeignTrainConfig(**{name: getattr(shared, name) for name in known}, foreign=foreign)
