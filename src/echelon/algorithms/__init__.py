"""PPO, PBT, SAPG, CPO, SAC and distillation, and the settings they own. Others are registered or installed.

Settings that every algorithm reads are `TrainConfig`; an algorithm with settings of its own derives a class from it.
Nothing here imports torch until an algorithm is looked up: the command line reads settings.
"""

import typing
from dataclasses import dataclass, field, fields, replace
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import tyro

from echelon.config import NoiseConfig, TrainConfig, from_dict
from echelon.config.checks import untyped
from echelon.config.ranges import COUNT, FACTOR, FRACTION, NOT_NEGATIVE, POSITIVE, SHARE, Range
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
    "reward_scale",
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
    """λ_adv; 0 builds no discriminator, unless `watch` asks for one."""
    watch: bool = False
    """Train the discriminator at λ_adv = 0 too, for its loss; it pays nothing then."""
    hidden: Annotated[tuple[int, ...], COUNT.up_to(2**16)] = (1024, 1024, 512, 512)
    """Widths of the discriminator's ELU layers."""


@dataclass(frozen=True)
class CpoTrainConfig(TrainConfig):
    """One run of CPO."""

    algo: str = "cpo"
    pull: PullConfig = field(default_factory=PullConfig)
    adversary: AdversaryConfig = field(default_factory=AdversaryConfig)

    @classmethod
    def why_fixed(cls, name: str, before: object, now: object) -> str | None:
        if name == "adversary.hidden":
            return "it sets the shape of the discriminator"
        if name in ("adversary.coef", "adversary.watch") and not (before and now):
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
    mutable: tuple[Mutable, ...] = tuple(name for name in typing.get_args(Mutable) if name != "reward_scale")
    """Fields of `update` that mutate. Reward scales that the task declares as mutable do so too."""


@dataclass(frozen=True)
class PbtTrainConfig(TrainConfig):
    """One run of PBT."""

    algo: str = "pbt"
    pbt: PbtConfig = field(default_factory=PbtConfig)


@dataclass(frozen=True)
class TeacherConfig:
    """Whom a student imitates."""

    run: str | None = None
    """Run whose leader shows what to do."""
    checkpoint: Annotated[int | None, COUNT] = None
    """Iteration of the checkpoint to take; the newest if unset."""
    fade: Annotated[int, NOT_NEGATIVE] = 20
    """Iterations in which the part of the environments where the teacher acts falls from all to none."""


@dataclass(frozen=True)
class DistilTrainConfig(TrainConfig):
    """One run of a student."""

    teacher: TeacherConfig = field(default_factory=TeacherConfig)

    def check(self) -> None:
        if self.teacher.run is None:
            raise UserError("distil imitates another run, its teacher, as in echelon distil RUN --obs policy")
        super().check()

    @classmethod
    def why_fixed(cls, name: str, before: object, now: object) -> str | None:
        return None


def student_of(teacher: TrainConfig, run: str, checkpoint: int | None = None) -> DistilTrainConfig:
    """Settings of a student of `run`, a run with the settings `teacher`: task, networks and length are the same.

    A student needs little noise, and no rule for its learning rate: what it learns from does not depend on what it
    does.
    """
    update = replace(teacher.update, learning_rate=1e-3, rate_schedule="fixed", entropy_coef=0.0)
    plain = replace(teacher, algo="distil", variant=(), policies=1, envs_per_policy=(), obs=(), history=1, until=None)
    plain = replace(plain, start_from=None, device="auto", out=None, wandb="off", update=update)
    return replace(
        converted(plain, DistilTrainConfig), noise=NoiseConfig(sigma=0.1), teacher=TeacherConfig(run, checkpoint)
    )


@dataclass(frozen=True)
class SacConfig:
    """Soft actor-critic from a replay. What is unset follows from the number of environments."""

    updates: Annotated[int | None, COUNT.up_to(10**4)] = None
    """Updates per control step of all environments; unset, one per environment up to 32, and 40 at 24,576."""
    batch: Annotated[int | None, COUNT.up_to(2**20)] = None
    """Rows of an update; unset, 256 to 4,096."""
    replay: Annotated[int, COUNT.up_to(10**10)] = 5_000_000
    """Most recent rows that are kept; no more than the run will collect."""
    save_replay: bool = False
    """Save the replay with every checkpoint, so that a run resumes to the bit; otherwise it fills again."""
    warm_up: Annotated[int | None, COUNT.up_to(10**9)] = None
    """Control steps of all environments before the first update; unset, those of 5,000 rows, but at least 8."""
    n_step: Annotated[int | None, COUNT.up_to(1000)] = None
    """Rewards that a target sums up before it trusts the critics; unset, 3, or below 64 environments 1."""
    learning_rate: Annotated[float, POSITIVE.up_to(10**6)] = 3e-4
    """Step size of actor, critics and temperature."""
    target_rate: Annotated[float, FRACTION] = 0.01
    """Share τ of the way that target critics move to the critics per update."""
    delay: Annotated[int, COUNT.up_to(1000)] = 2
    """Critic updates to one of the actor, which also learns at the first update of every step."""
    temperature: Annotated[float, POSITIVE] = 0.01
    """Temperature α at the start."""
    entropy: float = -0.48
    """Entropy per action that α is moved to hold; -0.48 is that of a sigma of 0.15."""
    persistence: Annotated[float | None, SHARE] = None
    """Chance that a step keeps the noise of the step before; unset, 0.5, or below 64 environments 0."""
    ladder: Annotated[tuple[float, float], POSITIVE] = (1.0, 1.0)
    """Factors on the noise of the first and the last environment; those between rise in equal factors."""
    hidden: Annotated[tuple[int, ...], COUNT.up_to(2**16)] = (512, 256, 128)
    """Widths of the actor's layers."""
    critic_width: Annotated[int | None, COUNT.up_to(2**16)] = None
    """Width of the critics; unset, 256, or below 64 environments 128."""
    critic_blocks: Annotated[int | None, COUNT.up_to(100)] = None
    """Residual blocks of each critic; unset, 2, or below 64 environments 1."""
    bins: Annotated[int, Range(low=2, high=10**4)] = 101
    """Bins of the critics' distribution."""
    reach: Annotated[float, POSITIVE] = 5.0
    """Largest return that the bins hold; returns are scaled into them."""

    def sized(self, num_envs: int) -> "SacConfig":
        """What is unset, filled in. At 24,576 environments about 7 rows are sampled per row collected, at 32 and below
        256."""
        small = num_envs < 64
        n_step = self.n_step or (1 if small else 3)  # few environments draw rows so often that most are of old policies
        batch = self.batch or min(4096, max(256, 1 << (num_envs.bit_length() - 1)))
        return replace(
            self,
            batch=batch,
            updates=self.updates or max(1, min(num_envs, round(max(8192, num_envs * 20 / 3) / batch))),
            warm_up=max(self.warm_up or max(8, -(-5_000 // num_envs)), n_step),
            n_step=n_step,
            persistence=(0.0 if small else 0.5) if self.persistence is None else self.persistence,
            critic_width=self.critic_width or (128 if small else 256),
            critic_blocks=self.critic_blocks or (1 if small else 2),
        )


READ_BY_SAC = (
    *(f"update.{name}" for name in ("horizon", "discount", "reward_scale", "timeout_bootstrap")),
    *("model.obs_clip", "model.lstm"),
)
"""Settings of other algorithms that SAC reads too. Its iteration is a horizon long, for the log alone."""


@dataclass(frozen=True)
class SacTrainConfig(TrainConfig):
    """One run of SAC."""

    sac: SacConfig = field(default_factory=SacConfig)

    def check(self) -> None:
        if self.algo == "sac" and self.model.lstm:
            raise UserError("sac has networks without memory; --model.lstm 0 trains it without")
        super().check()
        filling = (self.sac.sized(self.num_envs).warm_up or 0) * self.num_envs
        if self.algo == "sac" and self.num_iterations * self.steps_per_iteration < filling:
            raise UserError(f"sac learns after {filling:,} steps (--sac.warm-up), so --env-steps must be more")

    @classmethod
    def ignores(cls, name: str) -> bool:
        shared = ("update.", "model.", "ensemble.", "noise.", "diagnostics.")
        return name.startswith(shared) and name not in READ_BY_SAC

    @classmethod
    def why_fixed(cls, name: str, before: object, now: object) -> str | None:
        if name.removeprefix("sac.") in ("hidden", "critic_width", "critic_blocks", "bins"):
            return "it sets the shape of the networks"
        if name == "sac.temperature":
            return "it is where α began"
        return "values were learned in its units" if name == "sac.reach" else None


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
    "sac": SacTrainConfig,
    "distil": DistilTrainConfig,
}
"""Settings of the built-in algorithms; each is a file or folder here by its name."""
FROM_SCRATCH = ("ppo", "pbt", "sapg", "cpo")
"""Those that learn from rollouts without a teacher, which are compared with each other by default."""
IN_PRESET = (*FROM_SCRATCH, "sac")
"""Those that need no teacher. A preset has their settings."""


@dataclass(frozen=True)
class Preset(CpoTrainConfig, PbtTrainConfig, SacTrainConfig):
    """Settings of a task for all algorithms that learn from scratch; a run keeps those of the one that is chosen."""

    algo: Annotated[str, tyro.conf.arg(metavar="{" + ",".join(IN_PRESET) + "}")] = "cpo"
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
    return replace(shared, foreign=foreign)


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
    raise UserError(f"the algorithm is one of {', '.join(known)}, not {name!r}{nearest(name, known)}")


def _load(point: EntryPoint) -> "Algorithm[Any]":
    """Load an installed algorithm. Its package is untrusted: any error in it becomes one sentence."""
    from echelon.algorithms.algorithm import Algorithm

    place = f"--algo {point.name} is installed as {point.value}"
    try:
        found = point.load()
    except Exception as error:
        raise UserError(f"{place}, which cannot be imported: {first_line(error)}") from error
    if not isinstance(found, Algorithm) or found.name != point.name:
        raise UserError(f"{place}, which is not an Algorithm of that name")
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
