"""Settings of other libraries' PPO in ours, name by name. `docs/coming-from.md` prints these tables."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from echelon.errors import UserError

Translate = Callable[[Any], Any]


def _twice(value: Any) -> float:
    """Ours multiplies half the squared error, theirs all of it."""
    return 2 * float(value)


def _number(value: Any) -> float:
    return float(value)  # YAML reads 3e-4 as a text


def _widths(value: Any) -> tuple[int, ...]:
    return tuple(int(width) for width in value)


def _activation(value: Any) -> str:
    name = str(value).lower()
    if name not in (known := ("elu", "relu", "silu", "tanh")) and name != "swish":
        raise ValueError(f"one of {', '.join(known)}")
    return "silu" if name == "swish" else name


@dataclass(frozen=True)
class Peer:
    """A library: how its files are recognised, and what its settings are called here."""

    name: str
    mark: str
    """A setting that only its files have."""
    names: Mapping[str, tuple[str, Translate]]
    """Our setting, and what turns their value into ours, by their dotted name."""
    always: Mapping[str, str] = field(default_factory=dict)
    """Their settings that have no counterpart here, and why, by their dotted name."""


CLIPPED = "the value change is always clipped, by update.clip"
NORMALISED = "observations, values and advantages are always normalised"

RSL_RL = Peer(
    "rsl_rl",
    "num_steps_per_env",
    {
        "seed": ("seed", int),
        "num_steps_per_env": ("update.horizon", int),
        "max_iterations": ("iterations", int),
        "policy.actor_hidden_dims": ("model.hidden", _widths),
        "actor.hidden_dims": ("model.hidden", _widths),
        "policy.rnn_hidden_dim": ("model.lstm", int),
        "policy.activation": ("model.activation", _activation),
        "actor.activation": ("model.activation", _activation),
        "policy.init_noise_std": ("model.initial_sigma", _number),
        "algorithm.value_loss_coef": ("update.critic_coef", _twice),
        "algorithm.clip_param": ("update.clip", _number),
        "algorithm.entropy_coef": ("update.entropy_coef", _number),
        "algorithm.num_learning_epochs": ("update.mini_epochs", int),
        "algorithm.num_mini_batches": ("update.minibatches", int),
        "algorithm.learning_rate": ("update.learning_rate", _number),
        "algorithm.schedule": (
            "update.rate_schedule",
            lambda value: "minibatch" if value == "adaptive" else "fixed",
        ),
        "algorithm.gamma": ("update.discount", _number),
        "algorithm.lam": ("update.gae_lambda", _number),
        "algorithm.desired_kl": ("update.kl_threshold", _number),
        "algorithm.max_grad_norm": ("update.grad_norm", _number),
        "save_interval": ("checkpoint_every", int),
    },
    {
        "algorithm.use_clipped_value_loss": CLIPPED,
        "empirical_normalization": NORMALISED,
        "policy.critic_hidden_dims": "actor and critic share layers, or have the same widths with critic observations",
    },
)
RL_GAMES = Peer(
    "rl_games",
    "params.config.e_clip",
    {
        "params.seed": ("seed", int),
        "params.network.mlp.units": ("model.hidden", _widths),
        "params.network.rnn.units": ("model.lstm", int),
        "params.network.mlp.activation": ("model.activation", _activation),
        "params.config.num_actors": ("num_envs", int),
        "params.config.horizon_length": ("update.horizon", int),
        "params.config.seq_length": ("update.sequence", int),
        "params.config.seq_len": ("update.sequence", int),
        "params.config.max_epochs": ("iterations", int),
        "params.config.mini_epochs": ("update.mini_epochs", int),
        "params.config.gamma": ("update.discount", _number),
        "params.config.tau": ("update.gae_lambda", _number),
        "params.config.learning_rate": ("update.learning_rate", _number),
        "params.config.lr_schedule": (
            "update.rate_schedule",
            lambda value: "mini_epoch" if value == "adaptive" else "fixed",
        ),
        "params.config.kl_threshold": ("update.kl_threshold", _number),
        "params.config.e_clip": ("update.clip", _number),
        "params.config.critic_coef": ("update.critic_coef", _number),
        "params.config.entropy_coef": ("update.entropy_coef", _number),
        "params.config.bounds_loss_coef": ("update.bounds_coef", _number),
        "params.config.grad_norm": ("update.grad_norm", _number),
        "params.config.reward_shaper.scale_value": ("update.reward_scale", _number),
        "params.config.save_frequency": ("checkpoint_every", int),
    },
    {
        "params.config.clip_value": CLIPPED,
        "params.config.normalize_input": NORMALISED,
        "params.config.normalize_value": NORMALISED,
        "params.config.normalize_advantage": NORMALISED,
        "params.config.value_bootstrap": "a time limit is always bootstrapped: update.timeout_bootstrap says with what",
        "params.config.truncate_grads": "gradients are always clipped, by update.grad_norm",
    },
)
SKRL = Peer(
    "skrl",
    "agent.rollouts",
    {
        "seed": ("seed", int),
        "agent.rollouts": ("update.horizon", int),
        "agent.learning_epochs": ("update.mini_epochs", int),
        "agent.mini_batches": ("update.minibatches", int),
        "agent.discount_factor": ("update.discount", _number),
        "agent.lambda": ("update.gae_lambda", _number),
        "agent.learning_rate": ("update.learning_rate", _number),
        "agent.learning_rate_scheduler": (
            "update.rate_schedule",
            lambda value: "mini_epoch" if value and "KL" in str(value) else "fixed",
        ),
        "agent.learning_rate_scheduler_kwargs.kl_threshold": ("update.kl_threshold", _number),
        "agent.grad_norm_clip": ("update.grad_norm", _number),
        "agent.ratio_clip": ("update.clip", _number),
        "agent.entropy_loss_scale": ("update.entropy_coef", _number),
        "agent.value_loss_scale": ("update.critic_coef", _twice),
        "agent.rewards_shaper_scale": ("update.reward_scale", _number),
    },
    {
        "agent.value_clip": CLIPPED,
        "agent.clip_predicted_values": CLIPPED,
        "agent.state_preprocessor": NORMALISED,
        "agent.value_preprocessor": NORMALISED,
    },
)
STABLE_BASELINES = Peer(
    "Stable-Baselines3",
    "n_steps",
    {
        "seed": ("seed", int),
        "n_envs": ("num_envs", int),
        "n_timesteps": ("env_steps", lambda value: int(float(value))),
        "n_steps": ("update.horizon", int),
        "n_epochs": ("update.mini_epochs", int),
        "gamma": ("update.discount", _number),
        "gae_lambda": ("update.gae_lambda", _number),
        "clip_range": ("update.clip", _number),
        "ent_coef": ("update.entropy_coef", _number),
        "vf_coef": ("update.critic_coef", _twice),
        "max_grad_norm": ("update.grad_norm", _number),
        "learning_rate": ("update.learning_rate", _number),
        "policy_kwargs.net_arch": ("model.hidden", _widths),
    },
    {
        "normalize": NORMALISED,
        "normalize_advantage": NORMALISED,
        "clip_range_vf": CLIPPED,
        "target_kl": "passes are not cut short; update.kl_threshold moves the learning rate instead",
    },
)
PEERS = (RL_GAMES, RSL_RL, SKRL, STABLE_BASELINES)


def known_elsewhere_as(name: str) -> str | None:
    """Our setting for a name that other libraries give it (`gamma`, `e_clip`, `lr`), or None."""
    theirs = {"lr": "update.learning_rate"}
    for peer in PEERS:
        theirs |= {full.rpartition(".")[2]: ours for full, (ours, _) in peer.names.items()}
    return theirs.get(name)


@dataclass(frozen=True)
class Translated:
    """A file of another library in our settings."""

    library: str
    settings: dict[str, Any]
    """By dotted name."""
    needless: dict[str, str]
    """Why a setting of theirs has no counterpart, by their name."""
    unknown: list[str]
    """Settings of theirs that were not translated."""


def translate(data: Mapping[str, Any]) -> Translated:
    """Their settings in ours; the library is recognised by its names."""
    leaves = _leaves(data)
    peer = next((peer for peer in PEERS if peer.mark in leaves), None)
    if peer is None:
        marks = ", ".join(f"{peer.mark} ({peer.name})" for peer in PEERS)
        raise UserError(f"these are not settings of a library that is known here: none of {marks} is among them")
    settings: dict[str, Any] = {"algo": "ppo"}
    unknown: list[str] = []
    for name, value in leaves.items():
        if name not in peer.names:
            unknown += [] if name in peer.always else [name]
            continue
        ours, convert = peer.names[name]
        if value is None:
            continue
        try:
            settings[ours] = convert(value)
        except (TypeError, ValueError):
            raise UserError(f"{name} is {value!r}, which cannot be read as {ours}; change it in the file") from None
    settings |= _derived(peer, leaves, settings)
    needless = {name: peer.always[name] for name in leaves if name in peer.always}
    return Translated(peer.name, settings, needless, unknown)


def _derived(peer: Peer, leaves: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that follow from several of theirs, such as the number of minibatches from their size."""
    size = leaves.get("params.config.minibatch_size", leaves.get("batch_size"))
    envs, horizon = settings.get("num_envs"), settings.get("update.horizon")
    found: dict[str, Any] = {}
    if isinstance(size, int) and isinstance(envs, int) and isinstance(horizon, int):
        found["update.minibatches"] = max(1, envs * horizon // size)
    if peer is STABLE_BASELINES:
        found["update.rate_schedule"] = "fixed"
    if settings.get("model.lstm"):
        found["update.sequence"] = settings.get("update.sequence", horizon)
    return found


def _leaves(data: Mapping[str, Any], group: str = "") -> dict[str, Any]:
    """Settings by dotted name."""
    found: dict[str, Any] = {}
    for name, value in data.items():
        if isinstance(value, Mapping) and value:
            found |= _leaves(value, f"{group}{name}.")
        else:
            found[f"{group}{name}"] = value
    return found
