"""Settings of a run: frozen data, one docstring per field, complete in `config.json`.

Every field is a flag of `echelon train` (`--update.clip 0.1`), its docstring the flag's help. A range in its annotation
(`Annotated[float, POSITIVE]`) is checked before a run starts; any other number must be finite. A task's own settings
are the `env` part, whose class belongs to the task. An algorithm with settings of its own derives a class from
`TrainConfig` (`echelon.algorithms`).
"""

import dataclasses
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeVar

import tyro

from echelon.config.ranges import COUNT, NOT_NEGATIVE, POSITIVE, SHARE, Range
from echelon.errors import UserError, nearest

T = TypeVar("T")


@dataclass(frozen=True)
class TaskConfig:
    """Settings of a task. Each task derives its own."""

    def check(self) -> None:
        """Raise a `UserError` for settings that do not go together; ranges of single fields are checked elsewhere."""


@dataclass(frozen=True)
class ForeignSettings(TaskConfig):
    """Settings of a task that is not built in, as its `config.json` has them: readable without the task's code."""

    values: dict[str, Any] = field(default_factory=dict)
    """By name, groups nested; tuples, not lists."""


@dataclass(frozen=True)
class ModelConfig:
    """The actor-critic network, shared by all policies."""

    hidden: Annotated[tuple[int, ...], COUNT.up_to(2**16)] = (256, 128, 64)
    """Widths of the layers between the input (or the LSTM) and the heads."""
    activation: Literal["elu", "relu", "silu", "tanh"] = "elu"
    """Activation after each of these layers. ELU has its own kernel on CUDA."""
    channels: Annotated[tuple[int, ...], COUNT.up_to(2**12)] = (16, 32, 32)
    """Channels of the convolutions, 3 by 3 with stride 2, that images pass before these layers."""
    encoder: str | None = None
    """Your own network before these layers, instead of convolutions: `mypackage.module:make`; see docs/networks.md."""
    lstm: Annotated[int, NOT_NEGATIVE.up_to(2**16)] = 0
    """Units of an LSTM before those layers; 0 for none."""
    phi_dim: Annotated[int, COUNT.up_to(2**16)] = 32
    """Size of the learned vector that tells the shared network which policy it is. Unused with one policy."""
    obs_clip: Annotated[float, POSITIVE] = 5.0
    """Normalised observations are clipped to this magnitude."""
    initial_sigma: Annotated[float, POSITIVE] = 1.0
    """Every policy's sigma at the start."""
    max_sigma: Annotated[float | None, POSITIVE] = 2.0
    """Upper limit of every policy's sigma; None for none. Actions are clamped to ±1, beyond 2 nearly all of them."""


@dataclass(frozen=True)
class UpdateConfig:
    """Settings of every algorithm: targets, surrogate, critic, step size."""

    horizon: Annotated[int, COUNT.up_to(10**5)] = 16
    """Control steps collected from every environment per iteration."""
    sequence: Annotated[int, COUNT.up_to(10**5)] = 16
    """Length of the sequences an LSTM is trained on; divides the horizon. Unused without an LSTM."""
    mini_epochs: Annotated[int, COUNT.up_to(1000)] = 5
    """Passes over the collected data per iteration."""
    minibatch_envs: Annotated[float, Range(low=1e-7).up_to(10**6)] = 4.0
    """Rows in a minibatch, as a multiple of the number of environments."""
    minibatches: Annotated[int | None, COUNT.up_to(10**6)] = None
    """Minibatches per pass, instead of the number that follows from their rows. Sets the optimizer steps."""
    discount: Annotated[float, SHARE] = 0.99
    """Discount factor γ."""
    gae_lambda: Annotated[float, SHARE] = 0.95
    """Smoothing τ of the generalised advantage estimate."""
    reward_scale: float = 1.0
    """Factor on the environment's reward in training."""
    timeout_bootstrap: Literal["final_obs", "current_obs", "none"] = "final_obs"
    """Value added where the time limit ends an episode: V(final_obs), the reference's V(s_t), or nothing."""
    clip: Annotated[float, POSITIVE] = 0.2
    """Clip range ε of the policy ratio and of the value change."""
    critic_coef: Annotated[float, NOT_NEGATIVE] = 4.0
    """Weight of the value loss; half of it multiplies the squared error."""
    bounds_coef: Annotated[float, NOT_NEGATIVE] = 1e-4
    """Weight of the penalty on action means beyond ±1.1."""
    entropy_coef: float = 0.0
    """Entropy bonus of every policy."""
    entropy_scale: float = 0.0
    """Entropy bonus of the ensemble: policy k of M gets half of it times k/(M-1), so the leader gets none."""
    grad_norm: Annotated[float, POSITIVE] = 1.0
    """Global gradient norm above which gradients are scaled down."""
    learning_rate: Annotated[float, POSITIVE.up_to(10**6)] = 5e-4
    """Step size at the start; the KL rule moves it from there."""
    kl_threshold: Annotated[float, POSITIVE] = 0.016
    """Target κ* of the KL rule: above twice it the rate falls by 1.5, below half of it the rate rises by 1.5."""
    rate_schedule: Literal["mini_epoch", "minibatch", "fixed"] = "mini_epoch"
    """When the KL rule acts on the learning rate."""
    kl_reference: Literal["sliding", "rollout"] = "sliding"
    """The distribution κ is measured from: the same row's one pass earlier, or always the one that acted."""
    kl_rows: Literal["no_pull", "own", "all"] = "no_pull"
    """Rows that count for κ: all but `follower_pull`, only `own`, or all."""


@dataclass(frozen=True)
class EnsembleConfig:
    """Settings of SAPG and CPO: how a policy learns from rows that another one collected."""

    borrow_from: Literal["one", "part_of_each", "all"] = "one"
    """Rows that the leader borrows: a drawn follower's, the same number from all followers together, or all."""
    estimator: Literal["td", "gae", "vtrace"] = "td"
    """Targets on borrowed rows, by the borrower's values: one-step TD, GAE cut by the policy ratio, or V-trace."""
    clip_centre: Literal["one", "old_ratio"] = "one"
    """Centre of the leader's clip interval on borrowed rows: 1, or π_leader,old / π_follower,old."""
    advantage_scope: Literal["global", "group", "policy", "centred"] = "global"
    """Rows normalised together: all, a group, or a learner's of one source; centred: its mean, the group's scale."""
    loss_scale: Annotated[float, POSITIVE] = 1.0
    """Factor on the whole loss. CPO averages over 2M blocks of rows, SAPG over M+1: 2M/(M+1) gives SAPG's scale."""
    own_weight: Annotated[float, NOT_NEGATIVE] = 1.0
    """Weight of the surrogate on `own` rows."""
    borrow_weight: Annotated[float, NOT_NEGATIVE] = 1.0
    """Weight of the surrogate on `leader_borrows` rows."""


@dataclass(frozen=True)
class DiagnosticsConfig:
    """Measurements of how far the policies are apart."""

    every: Annotated[int, NOT_NEGATIVE] = 10
    """Iterations between two measurements; 0 for none."""
    states: Annotated[int, COUNT.up_to(10**7)] = 512
    """States per policy that the KL matrix and the importance weights are measured on."""


@dataclass(frozen=True)
class TrainConfig:
    """One run."""

    # Fixed: the command line takes the task by position, because its preset decides what the flags default to.
    task: Annotated[str, tyro.conf.Fixed] = "CartpoleSwingup"
    """Name of the task (`echelon tasks` lists them)."""
    source: Annotated[str | None, tyro.conf.Fixed] = None
    """Where an environment that is not built in comes from: `gymnasium:Walker2d-v5`, `mypackage.module:make`."""
    env_arg: tuple[str, ...] = ()
    """Arguments `name=value` for an environment that is not built in."""
    algo: str = "cpo"
    """Algorithm."""
    preset: Literal["best", "paper"] = "best"
    """Settings to start from: the best this project has found for the task, or the paper's. A variant changes these."""
    variant: tuple[str, ...] = ()
    """Named changes of the preset, one after the other (`echelon variants` lists them). Flags win over them."""
    policies: Annotated[int | None, COUNT.up_to(1024)] = None
    """Policies M: one leader and M-1 followers, or members of a population; the algorithm's own by default."""
    num_envs: Annotated[int, COUNT.up_to(10**7)] = 256
    """Environments simulated side by side."""
    envs_per_policy: tuple[int, ...] = ()
    """Environments of each policy, the leader's first; divided evenly unless given."""
    iterations: Annotated[int | None, COUNT.up_to(10**9)] = None
    """Iterations to train for; or give `env_steps`."""
    env_steps: Annotated[int, COUNT.up_to(10**15)] = 1_000_000
    """Environment steps to train for, rounded up to whole iterations."""
    until: str | None = None
    """Stop earlier, once a metric passes a value: `return/leader>=500`."""
    start_from: Annotated[str | None, tyro.conf.arg(aliases=["--from"])] = None
    """Run whose networks a new run begins with."""
    seed: Annotated[int, Range(low=0, high=2**32 - 1)] = 0
    """Seed of all random numbers."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to train; auto is CUDA if there is a GPU."""
    threads: Annotated[int, Range(low=1, high=1024)] = 1
    """Threads of torch on a CPU. Physics uses all cores, and spinning threads of torch would starve it."""
    capture: bool = True
    """Record rollout and update as CUDA graphs, and replay them. Turn it off to debug. No effect on a CPU."""
    fuse: bool = True
    """Compile tensor work into fewer kernels on CUDA. Off, a run starts half a minute sooner and trains slower."""
    precision: Literal["tf32", "fp32", "bf16"] = "tf32"
    """Precision of matrix products on CUDA; bf16 concerns the trunks, from FP32 weights. All else is FP32 or better."""
    out: str | None = None
    """Run folder; named after task, algorithm or variant, and seed unless given. An existing one is resumed."""
    checkpoint_every: Annotated[int, COUNT.up_to(10**9)] = 50
    """Iterations between two checkpoints."""
    checkpoint_minutes: Annotated[float, NOT_NEGATIVE] = 5.0
    """Minutes after which a checkpoint is saved at the latest; 0 saves by iterations alone."""
    keep_checkpoints: Annotated[int, COUNT.up_to(10**6)] = 3
    """Newest checkpoints kept; the best is kept too."""
    wandb: Literal["off", "online", "offline"] = "off"
    """Metrics to Weights & Biases too; needs the wandb extra. They are always in metrics.jsonl and TensorBoard."""
    env: TaskConfig = field(default_factory=TaskConfig)
    """Settings of the task."""
    model: ModelConfig = field(default_factory=ModelConfig)
    update: UpdateConfig = field(default_factory=UpdateConfig)
    ensemble: EnsembleConfig = field(default_factory=EnsembleConfig)
    diagnostics: DiagnosticsConfig = field(default_factory=DiagnosticsConfig)

    @property
    def num_policies(self) -> int:
        """M, of settings that are complete: `echelon.algorithms.complete` fills in the algorithm's own number."""
        assert self.policies is not None
        return self.policies

    @property
    def steps_per_iteration(self) -> int:
        """Environment steps that all environments together take in one iteration."""
        return self.num_envs * self.update.horizon

    @property
    def num_iterations(self) -> int:
        """Iterations of the whole run."""
        return self.iterations if self.iterations is not None else -(-self.env_steps // self.steps_per_iteration)

    @property
    def method(self) -> str:
        """What is trained, by name: the variant, `no_pull+entropy_off`, or else the algorithm."""
        return "+".join(self.variant) or self.algo

    @classmethod
    def why_fixed(cls, name: str, before: Any, now: Any) -> str | None:
        """Why one of the algorithm's own settings cannot change in the middle of a run; None if it can."""
        return "it would be another run"


@dataclass(frozen=True)
class ForeignTrainConfig(TrainConfig):
    """A run of an algorithm that is not built in, as `config.json` has it: readable without the algorithm's code."""

    foreign: dict[str, Any] = field(default_factory=dict)
    """The algorithm's own settings by name, groups nested; tuples, not lists."""


def to_dict(config: Any) -> dict[str, Any]:
    """A config as plain data for JSON; the inverse of `from_dict`."""
    data = dataclasses.asdict(config)
    if isinstance(config, TrainConfig) and isinstance(config.env, ForeignSettings):
        data["env"] = dict(config.env.values)
    if isinstance(config, ForeignTrainConfig):
        data |= data.pop("foreign")
    return data


def with_settings(config: T, settings: Mapping[str, Any]) -> T:
    """`config` with other values of some settings, by dotted name."""
    for name, value in settings.items():
        group, _, inside = name.partition(".")
        new = with_settings(getattr(config, group), {inside: value}) if inside else value
        config = dataclasses.replace(config, **{group: new})  # pyright: ignore[reportArgumentType]  # T is a dataclass
    return config


def from_dict(template: T, data: dict[str, Any], where: str = "") -> T:
    """`data` laid over `template`, in the template's own classes. Unknown keys and wrong types fail."""
    hints = typing.get_type_hints(type(template))
    hints = {field.name: hints[field.name] for field in dataclasses.fields(template)}  # pyright: ignore[reportArgumentType]
    changes: dict[str, Any] = {}
    for key, value in data.items():
        name = f"{where}.{key}" if where else key
        if key not in hints:
            raise UserError(f"{name} is not a setting{nearest(key, hints)}")
        current = getattr(template, key)
        if dataclasses.is_dataclass(current):
            if not isinstance(value, dict):
                raise UserError(f"{name} takes a group of settings, not {value!r}")
            foreign = isinstance(current, ForeignSettings)
            changes[key] = _foreign_settings(value) if foreign else from_dict(current, value, name)
        else:
            changes[key] = _checked(value, hints[key], name)
    return dataclasses.replace(template, **changes)  # pyright: ignore[reportArgumentType]  # T is a dataclass


def _foreign_settings(values: dict[str, Any]) -> TaskConfig:
    """Settings whose class is not known; those of a task without any are plain."""
    return ForeignSettings(with_tuples(values)) if values else TaskConfig()


def with_tuples(value: Any) -> Any:
    """Data from JSON with its lists as the tuples they were."""
    if isinstance(value, dict):
        return {key: with_tuples(item) for key, item in value.items()}
    return tuple(map(with_tuples, value)) if isinstance(value, list | tuple) else value


def _checked(value: Any, hint: Any, name: str) -> Any:
    """`value` as the annotation `hint` wants it (lists from JSON become tuples), or a `UserError`."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        if value in args:
            return value
        words = [str(arg) for arg in args]
        raise UserError(f"{name} is one of {', '.join(words)}, not {value!r}{nearest(str(value), words)}")
    if origin in (types.UnionType, typing.Union):
        if value is None and types.NoneType in args:
            return None
        return _checked(value, next(arg for arg in args if arg is not types.NoneType), name)
    if origin is tuple and isinstance(value, list | tuple):
        hints = [args[0]] * len(value) if Ellipsis in args else args
        if len(value) != len(hints):
            raise UserError(f"{name} takes {len(hints)} values, not {len(value)}: {list(value)!r}")
        return tuple(_checked(item, hint, name) for item, hint in zip(value, hints, strict=True))
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise UserError(
                f"{name} takes a number that float64 can hold, not one of {len(str(value))} digits"
            ) from None
    if isinstance(hint, type) and isinstance(value, hint) and (hint is bool or not isinstance(value, bool)):
        return value
    wanted = args[0] if origin is tuple else hint
    kind = ("a list of " if origin is tuple else "") + getattr(wanted, "__name__", str(wanted))
    raise UserError(f"{name} takes {kind}, not {value!r}")
