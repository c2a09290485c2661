"""Settings of a run: frozen data, one docstring per field, complete in `config.json`.

Every field is a flag of `echelon train` (`--update.clip 0.1`), its docstring the flag's help. A range in its annotation
(`Annotated[float, POSITIVE]`) is checked before a run starts; any other number must be finite. A task's own settings
are the `env` part, whose class belongs to the task. An algorithm with settings of its own derives a class from
`TrainConfig` (`echelon.algorithms`).
"""

from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Annotated, Any, Literal

import tyro

from echelon.config.ranges import COUNT, NOT_NEGATIVE, POSITIVE, SHARE, Range
from echelon.errors import UserError, require_package


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


Interval = tuple[float, float]
"""Lowest and highest value; equal ones fix it."""


@dataclass(frozen=True)
class RandomiseConfig:
    """Domain randomisation: each takes a lowest and a highest value, between which environments draw at each reset."""

    mass: Annotated[Interval, POSITIVE.up_to(100)] = (1.0, 1.0)
    """Factor on mass and inertia, drawn for each body."""
    friction: Annotated[Interval, POSITIVE.up_to(100)] = (1.0, 1.0)
    """Factor on the friction of all contacts."""
    damping: Annotated[Interval, NOT_NEGATIVE.up_to(100)] = (1.0, 1.0)
    """Factor on damping, drawn for each degree of freedom."""
    armature: Annotated[Interval, NOT_NEGATIVE.up_to(100)] = (1.0, 1.0)
    """Factor on armature, drawn for each degree of freedom."""
    gain: Annotated[Interval, NOT_NEGATIVE.up_to(100)] = (1.0, 1.0)
    """Factor on force, drawn for each actuator: a motor's gain, a servo's stiffness and damping."""
    gravity: Annotated[Interval, NOT_NEGATIVE.up_to(100)] = (1.0, 1.0)
    """Factor on gravity."""
    action_delay: Annotated[Interval, NOT_NEGATIVE.up_to(1)] = (0.0, 0.0)
    """Seconds by which controls reach the actuators late."""
    action_noise: Annotated[Interval, NOT_NEGATIVE.up_to(10)] = (0.0, 0.0)
    """Deviation of the noise on controls, as a share of half an actuator's range, or of 1 if it has none."""
    observation_delay: Annotated[Interval, NOT_NEGATIVE.up_to(1)] = (0.0, 0.0)
    """Seconds by which the policy observes late."""
    observation_noise: Annotated[Interval, NOT_NEGATIVE.up_to(10)] = (0.0, 0.0)
    """Deviation of the noise on each number that the policy observes, in the observation's own units."""
    push: Annotated[Interval, NOT_NEGATIVE.up_to(100)] = (0.0, 0.0)
    """Speed in m/s that a push gives to the first body of each mechanism, sideways and at random times."""
    push_seconds: Annotated[float, POSITIVE] = 4.0
    """Mean time between two pushes."""

    def active(self) -> dict[str, Interval]:
        """Ranges that change something, by name."""
        ranges = {name: values for name, values in vars(self).items() if name != "push_seconds"}
        return {name: values for name, values in ranges.items() if values != getattr(PLAIN, name)}

    def __post_init__(self) -> None:
        for name, values in vars(self).items():
            if isinstance(values, tuple) and values[0] > values[1]:
                flag = f"--randomise.{name.replace('_', '-')}"
                raise UserError(f"{flag} takes the lowest value first, so write {flag} {values[1]:g} {values[0]:g}")


PLAIN = RandomiseConfig()
"""Physics as the task's model has it."""


def _ranges(factor: float, gravity: float, delay: float, noise: float, push: float) -> RandomiseConfig:
    """Factors from 1 - `factor` to 1 + `factor`, gravity likewise, and all else from 0."""
    around, late, noisy = (1 - factor, 1 + factor), (0.0, delay), (0.0, noise)
    return RandomiseConfig(
        **dict.fromkeys(("mass", "friction", "damping", "armature", "gain"), around),
        gravity=(1 - gravity, 1 + gravity),
        **dict.fromkeys(("action_delay", "observation_delay"), late),
        **dict.fromkeys(("action_noise", "observation_noise"), noisy),
        push=(0.0, push),
    )


ROBUST = _ranges(factor=0.3, gravity=0.05, delay=0.02, noise=0.02, push=0.5)
"""Ranges of the variant `robust`."""
WIDE = _ranges(factor=0.5, gravity=0.2, delay=0.04, noise=0.1, push=1.0)
"""Ranges over which robustness is measured."""


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
class NoiseConfig:
    """Exploration noise at a target. Without one, sigma is learned like any other parameter."""

    sigma: Annotated[float | None, POSITIVE] = None
    """The leader's sigma, as a geometric mean over its actions; unset, it is learned."""
    loudest: Annotated[float | None, POSITIVE] = None
    """The last follower's sigma; those between rise in equal factors. Unset, all have the leader's."""
    anneal: Annotated[int, NOT_NEGATIVE] = 0
    """Environment steps in which sigma moves there from `--model.initial-sigma`; 0 begins there."""
    actions: tuple[str, ...] = ()
    """Places of the actions whose sigma is held, as in 7:23; the others' is learned. Unset, all are held."""


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
    kl_rows: Literal["no_pull", "own", "all"] = "own"
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
    """Iterations between two measurements; 0 for none. The last iteration is measured too."""
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
    obs: tuple[str, ...] = ()
    """What the policy sees: policy (what the robot measures), critic, image, or places as in 0:5; all unless given."""
    history: Annotated[int, COUNT.up_to(1000)] = 1
    """Observations that it sees at once: the current one, and those before it."""
    algo: str = "ppo"
    """Algorithm."""
    preset: Literal["best", "paper"] = "best"
    """Settings to start from: the best this project has found for the task, or the paper's. A variant changes these."""
    variant: tuple[str, ...] = ()
    """Named changes of the preset, one after the other (`echelon variants` lists them). Flags win over them."""
    policies: Annotated[int | None, COUNT.up_to(1024)] = None
    """Policies M: one leader and M-1 followers, or members of a population; the algorithm's own by default."""
    num_envs: Annotated[int, COUNT.up_to(4 * 10**6)] = 256
    """Environments simulated side by side."""
    envs_per_policy: tuple[int, ...] = ()
    """Environments of each policy, the leader's first; divided evenly unless given."""
    iterations: Annotated[int | None, COUNT.up_to(10**9)] = None
    """Iterations to train for; or give `env_steps`."""
    env_steps: Annotated[int, COUNT.up_to(10**15)] = 1_000_000
    """Environment steps to train for, rounded up to whole iterations."""
    until: str | None = None
    """Stop earlier, once a metric passes a value: `return>=500`."""
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
    noise: NoiseConfig = field(default_factory=NoiseConfig)
    update: UpdateConfig = field(default_factory=UpdateConfig)
    ensemble: EnsembleConfig = field(default_factory=EnsembleConfig)
    diagnostics: DiagnosticsConfig = field(default_factory=DiagnosticsConfig)

    def check(self) -> None:
        """Raise a `UserError` for settings that do not go together, as far as can be told without importing torch.

        `echelon.training.resolve` checks the rest: algorithm, device, and how environments split between policies.
        """
        model, update, noise = self.model, self.update, self.noise
        if model.lstm and update.horizon % update.sequence:
            odd = f"--update.sequence {update.sequence} does not divide --update.horizon {update.horizon}"
            raise UserError(f"{odd}, which training an LSTM needs; change one of them")
        if noise.sigma is None and (noise.loudest is not None or noise.anneal or noise.actions):
            raise UserError("--noise.loudest, anneal and actions need --noise.sigma, the leader's target")
        loud = max(noise.sigma or 0.0, noise.loudest or 0.0)
        for name, sigma in {"--model.initial-sigma": model.initial_sigma, "the noise's target": loud}.items():
            if model.max_sigma is not None and sigma > model.max_sigma:
                raise UserError(f"{name} {sigma:g} is above --model.max-sigma {model.max_sigma:g}")
        if self.wandb != "off":
            require_package("wandb", "--wandb", "wandb")
        self.env.check()

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

    @classmethod
    def ignores(cls, name: str) -> bool:
        """Whether the algorithm reads nothing of a setting that all have, so that a user who gives it is mistaken."""
        return False


@dataclass(frozen=True)
class ForeignTrainConfig(TrainConfig):
    """A run of an algorithm that is not built in, as `config.json` has it: readable without the algorithm's code."""

    foreign: dict[str, Any] = field(default_factory=dict)
    """The algorithm's own settings by name, groups nested; tuples, not lists."""


@dataclass(frozen=True)
class TaskInfo:
    """A task, described without importing it.

    A task, or a family of tasks, is a folder: `settings.py` without torch has `TASKS`, a `TaskInfo` per task; `task.py`
    has a class of the same name for each; the MJCF of its scenes is beside them.
    """

    description: str
    """One line for `echelon tasks`."""
    preset: TrainConfig
    """Settings to start from; `task` is the task's name, `env` its own settings."""
    best: tuple[str, ...] = ()
    """Variants of the preset that trained best, which are the default."""
    folder: str = ""
    """Package of the task; set by `tasks_in`."""

    @property
    def task(self) -> Any:
        """The task's class."""
        return getattr(import_module(f"{self.folder}.task"), self.preset.task)


def tasks_in(folder: str) -> dict[str, TaskInfo]:
    """Tasks of a package by name; empty for a package or module without `TASKS` in its `settings`."""
    try:
        found = getattr(import_module(f"{folder}.settings"), "TASKS", ())
    except ModuleNotFoundError as error:
        if error.name is not None and not f"{folder}.settings.".startswith(f"{error.name}."):
            raise
        return {}
    return {info.preset.task: replace(info, folder=folder) for info in found}
