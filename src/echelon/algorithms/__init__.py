"""PPO, PBT, SAPG and CPO: a file each. Others are registered, or installed as entry points.

Nothing here imports torch until an algorithm is looked up.
"""

from dataclasses import replace
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any

from echelon.algorithms.settings import BUILT_IN, converted
from echelon.config import TrainConfig
from echelon.errors import UserError, first_line, nearest

if TYPE_CHECKING:
    from echelon.algorithms.algorithm import Algorithm

GROUP = "echelon.algorithms"
"""Entry points of installed packages: `flock = "my_package.flock:FLOCK"` makes `--algo flock` known everywhere."""
REGISTERED: "dict[str, Algorithm[Any]]" = {}
"""Algorithms that this process has registered. They come before all others of their names."""


def register(algorithm: "Algorithm[Any]") -> "Algorithm[Any]":
    """Make an algorithm known by its name in this process. A later one of the same name replaces it."""
    REGISTERED[algorithm.name] = algorithm
    return algorithm


def names() -> list[str]:
    """All algorithms that `find` would find."""
    return list(dict.fromkeys([*BUILT_IN, *REGISTERED, *(point.name for point in entry_points(group=GROUP))]))


def find(name: str) -> "Algorithm[Any]":
    """The algorithm of that name: registered, built in or installed."""
    if name in REGISTERED:
        return REGISTERED[name]
    if name in BUILT_IN:
        return getattr(import_module(f"{__name__}.{name}"), name.upper())
    for point in entry_points(group=GROUP, name=name):
        return _load(point)
    known = names()
    raise UserError(f"--algo takes one of {', '.join(known)}, not {name!r}{nearest(name, known)}")


def _load(point: EntryPoint) -> "Algorithm[Any]":
    """Load an installed algorithm. Its package is untrusted: any error in it becomes one sentence."""
    from echelon.algorithms.algorithm import Algorithm

    try:
        found = point.load()
    except Exception as error:
        raise UserError(
            f"--algo {point.name} is installed as {point.value}, which cannot be imported: {first_line(error)}"
        ) from error
    if not isinstance(found, Algorithm) or found.name != point.name:
        raise UserError(f"--algo {point.name} is installed as {point.value}, which is not an Algorithm of that name")
    return found


def settings_class(name: str) -> type[TrainConfig]:
    """The class of an algorithm's settings; of a built-in one without importing torch."""
    return BUILT_IN[name] if name in BUILT_IN and name not in REGISTERED else find(name).settings


def with_algorithm(config: TrainConfig, name: str) -> TrainConfig:
    """The settings for another algorithm: its own replace those that only others have."""
    return converted(replace(config, algo=name), settings_class(name))


def complete(config: TrainConfig) -> TrainConfig:
    """The settings of the chosen algorithm only, with its default number of policies if that is unset."""
    algorithm = find(config.algo)
    if type(config) is not algorithm.settings:
        config = converted(config, algorithm.settings)
    if config.policies is None:
        config = replace(config, policies=algorithm.policies)
    if algorithm.one_policy and config.policies != 1:
        raise UserError(f"{config.algo} trains one policy, not {config.policies}; drop --policies or choose --algo cpo")
    return config


def __getattr__(name: str) -> Any:
    """Import `Algorithm`, and torch with it, when it is asked for."""
    if name != "Algorithm":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from echelon.algorithms.algorithm import Algorithm

    return Algorithm
