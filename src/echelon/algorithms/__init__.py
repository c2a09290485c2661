"""PPO, PBT, SAPG and CPO, a file each, and the settings they own. Others are registered, or installed as entry points.

Settings that every algorithm reads are `TrainConfig`; an algorithm with settings of its own derives a class from it.
Nothing here imports torch until an algorithm is looked up: the command line reads settings.
"""

import typing
from dataclasses import dataclass, field, fields, replace
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import tyro

from echelon.config import TrainConfig, from_dict
from echelon.config.checks import untyped
from echelon.config.ranges import COUNT, FACTOR, FRACTION, NOT_NEGATIVE, POSITIVE, SHARE
from echelon.config.schema import ForeignTrainConfig
from echelon.errors import UserError, first_line, nearest

if TYPE_CHECKING:
    from echelon.algorithms.algorithm import Algorithm

C = TypeVar("C", bound=TrainConfig)

POLICIES = 6
"""Policies of an ensemble or members of a population, if unset."""
Mutable = Literal[
    "learning_rate",
    "clip",
    "mini_epochs",
    "discount",
    "critic_coef",
    "bounds_coef",
    "entropy_coef",
    "grad_norm",
    "kl_threshold",
]
"""Fields of `UpdateConfig` that may differ between the members of a population."""
GROUP = "echelon.algorithms"
"""Entry points of installed packages: `flock = "my_package.flock:FLOCK"` makes `--algo flock` known everywhere."""
REGISTERED: "dict[str, Algorithm[Any]]" = {}
"""Algorithms that this process has registered. They come before all others of their names."""


@dataclass(frozen=True)
class PullConfig:
    """CPO's KL term: every follower imitates the leader's actions, weighted by its own advantage estimate."""

    beta: Annotated[float, NOT_NEGATIVE] = 1e-3
    """Weight β of the pull term; 0 leaves its rows in the plan."""
    temperature: Annotated[float, POSITIVE] = 0.2
    """λ_f in the weight exp(Â/λ_f). Smaller means a stronger pull here, because the weight is not normalised."""
    cap: Annotated[float, POSITIVE] = 100.0
    """Upper limit of that weight."""
    normalise: bool = False
    """Divide each follower's weights by their mean over the minibatch, so that β alone is the pull's strength."""
    use_advantage: bool = True
    """False sets every weight to 1: plain imitation of the leader."""
    reverse_temperature: Annotated[float, NOT_NEGATIVE] = 0.0
    """λ_r of the reverse-KL penalty in the followers' surrogate; 0 computes nothing."""


@dataclass(frozen=True)
class AdversaryConfig:
    """The adversarial reward: followers are paid for being told apart by a discriminator D(policy | s, a)."""

    coef: Annotated[float, NOT_NEGATIVE] = 0.0
    """λ_adv; 0 builds no discriminator."""
    hidden: Annotated[tuple[int, ...], COUNT.up_to(2**16)] = (1024, 1024, 512, 512)
    """Widths of the discriminator's ELU layers."""


@dataclass(frozen=True)
class CpoTrainConfig(TrainConfig):
    """One run of CPO."""

    pull: PullConfig = field(default_factory=PullConfig)
    adversary: AdversaryConfig = field(default_factory=AdversaryConfig)

    @classmethod
    def why_fixed(cls, name: str, before: object, now: object) -> str | None:
        if name == "adversary.hidden":
            return "it sets the shape of the discriminator"
        if name == "adversary.coef" and not (before and now):
            return "it would add or remove the discriminator"
        return None


@dataclass(frozen=True)
class PbtConfig:
    """Population-based training: at intervals the worst members copy the best and try other hyperparameters."""

    interval: Annotated[int, COUNT] = 20_000_000
    """Environment steps of each member between two checks."""
    initial_delay: Annotated[int, NOT_NEGATIVE] = 200_000_000
    """Environment steps of each member before any is replaced."""
    wait: Annotated[int, NOT_NEGATIVE] = 50_000_000
    """Environment steps a member is left alone after it was replaced."""
    worst_fraction: Annotated[float, FRACTION] = 0.3
    """Share of the members that may be replaced at a check, rounded up."""
    best_fraction: Annotated[float, FRACTION] = 0.3
    """Share of the members they copy, rounded up."""
    threshold_std: Annotated[float, NOT_NEGATIVE] = 0.5
    """A donor is copied if its objective is better by more than this many standard deviations of the population's."""
    threshold_share: Annotated[float, NOT_NEGATIVE] = 0.05
    """And by more than this share of the donor's objective; else the member keeps its weights."""
    mutation_probability: Annotated[float, SHARE] = 0.15
    """Chance of each hyperparameter of a replaced member to change."""
    mutation_low: Annotated[float, FACTOR] = 1.1
    """Smallest factor by which a hyperparameter is multiplied or divided."""
    mutation_high: Annotated[float, FACTOR] = 1.5
    """Largest such factor."""
    discount_high: Annotated[float, FACTOR] = 1.2
    """Largest factor for the discount, whose 1 - γ is multiplied or divided."""
    mutate_at_start: bool = True
    """Let every member start from hyperparameters that have mutated once."""
    mutable: tuple[Mutable, ...] = typing.get_args(Mutable)
    """Fields of `update` that mutate. Reward scales that the task declares as mutable do so too."""


@dataclass(frozen=True)
class PbtTrainConfig(TrainConfig):
    """One run of PBT."""

    pbt: PbtConfig = field(default_factory=PbtConfig)


def short_run_pbt(env_steps: int, members: int = POLICIES) -> PbtConfig:
    """Settings of PBT for a short run of `env_steps` environment steps in all: at most sixty checks, larger mutations.

    DexPBT's own are for billions of steps, with a check after each 1/166 of them. A run of a few million steps has time
    for some tens of checks, so each of them has to change more.
    """
    own = env_steps // members
    return PbtConfig(
        interval=max(1, own // 60),
        initial_delay=own // 15,
        wait=own // 15,
        mutation_probability=0.5,
        mutation_low=1.2,
        mutation_high=3.0,
    )


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
    foreign = untyped({key: value for key, value in data.items() if key not in known})
    return ForeignTrainConfig(**{name: getattr(shared, name) for name in known}, foreign=foreign)


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
