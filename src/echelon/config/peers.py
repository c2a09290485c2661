"""Translate settings of other libraries' PPO into ours, name by name. `docs/coming-from.md` explains this table."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from echelon.config.checks import settings_of
from echelon.config.schema import TrainConfig
from echelon.errors import UserError

RL_GAMES, RSL_RL, SKRL, SB3 = LIBRARIES = ("rl_games", "rsl_rl", "skrl", "Stable-Baselines3")
MARKS = {RL_GAMES: "params.config.e_clip", RSL_RL: "num_steps_per_env", SKRL: "agent.rollouts", SB3: "n_steps"}
"""A setting that only this library's files have."""
GROUPS = {
    RL_GAMES: ("params.config.reward_shaper.", "params.config.", "params.network.mlp.", "params.network.", "params."),
    RSL_RL: ("algorithm.", "policy.", "actor."),
    SKRL: ("agent.learning_rate_scheduler_kwargs.", "agent."),
    SB3: ("policy_kwargs.",),
}
"""Groups of settings, whose names the table leaves out."""
TABLE = """
ours                  rl_games          rsl_rl               skrl                     Stable-Baselines3
seed                  seed              seed                 seed                     seed
num_envs              num_actors        -                    -                        n_envs
iterations            max_epochs        max_iterations       -                        -
env_steps             -                 -                    -                        n_timesteps
checkpoint_every      save_frequency    save_interval        -                        -
model.hidden          units             actor_hidden_dims    -                        net_arch
model.hidden          -                 hidden_dims          -                        -
model.lstm            rnn.units         rnn_hidden_dim       -                        -
model.activation      activation        activation           -                        -
model.initial_sigma   -                 init_noise_std       -                        -
update.horizon        horizon_length    num_steps_per_env    rollouts                 n_steps
update.sequence       seq_length        -                    -                        -
update.sequence       seq_len           -                    -                        -
update.mini_epochs    mini_epochs       num_learning_epochs  learning_epochs          n_epochs
update.minibatches    -                 num_mini_batches     mini_batches             -
update.discount       gamma             gamma                discount_factor          gamma
update.gae_lambda     tau               lam                  lambda                   gae_lambda
update.clip           e_clip            clip_param           ratio_clip               clip_range
update.critic_coef    critic_coef       value_loss_coef      value_loss_scale         vf_coef
update.entropy_coef   entropy_coef      entropy_coef         entropy_loss_scale       ent_coef
update.bounds_coef    bounds_loss_coef  -                    -                        -
update.learning_rate  learning_rate     learning_rate        learning_rate            learning_rate
update.rate_schedule  lr_schedule       schedule             learning_rate_scheduler  -
update.kl_threshold   kl_threshold      desired_kl           kl_threshold             -
update.grad_norm      grad_norm         max_grad_norm        grad_norm_clip           max_grad_norm
update.reward_scale   scale_value       -                    rewards_shaper_scale     -
"""
ROWS = [line.split() for line in TABLE.strip().splitlines()[1:]]
REASONS = {
    "the value change is always clipped, by update.clip": (
        *("clip_value", "use_clipped_value_loss", "value_clip", "clip_predicted_values", "clip_range_vf"),
    ),
    "observations, values and advantages are always normalised": (
        *("normalize_input", "normalize_value", "normalize_advantage", "normalize"),
        *("empirical_normalization", "state_preprocessor", "value_preprocessor"),
    ),
    "actor and critic share layers, or have the same widths with critic observations": ("critic_hidden_dims",),
    "a time limit is always bootstrapped: update.timeout_bootstrap says with what": ("value_bootstrap",),
    "gradients are always clipped, by update.grad_norm": ("truncate_grads",),
    "passes are not cut short; update.kl_threshold moves the learning rate instead": ("target_kl",),
}
"""Why settings of theirs have no counterpart here."""


def known_elsewhere_as(name: str) -> str | None:
    """Our setting for a name that other libraries give it (`gamma`, `e_clip`, `lr`), or None."""
    return next((ours for ours, *theirs in ROWS if name in theirs), "update.learning_rate" if name == "lr" else None)


@dataclass(frozen=True)
class Translated:
    """A file of another library in our settings."""

    library: str
    settings: dict[str, Any]
    needless: dict[str, str]
    """Why a setting of theirs has no counterpart here."""
    unknown: list[str]
    """Settings of theirs that were not translated."""


def translate(data: Mapping[str, Any]) -> Translated:
    """Their settings in ours; the library is recognised by its names."""
    leaves = _leaves(data)
    library = next((name for name, mark in MARKS.items() if mark in leaves), None)
    if library is None:
        marks = ", ".join(f"{mark} ({name})" for name, mark in MARKS.items())
        raise UserError(f"these are not settings of a known library: none of {marks} is among them")
    column = 1 + LIBRARIES.index(library)
    names = {row[column]: row[0] for row in ROWS if row[column] != "-"}
    reasons = {name: reason for reason, needless in REASONS.items() for name in needless}
    found = Translated(library, {"algo": "ppo"}, {}, [])
    for full, value in leaves.items():
        group = next((group for group in GROUPS[library] if full.startswith(group)), "")
        name = full.removeprefix(group)
        if name in reasons:
            found.needless[full] = reasons[name]
        elif name not in names:
            found.unknown.append(full)
        elif value is not None:
            try:
                found.settings[names[name]] = _convert(library, names[name], value)
            except (TypeError, ValueError):
                raise UserError(
                    f"{full} is {value!r}, which cannot be read as {names[name]}; change it in the file"
                ) from None
    found.settings.update(_derived(library, leaves, found.settings))
    return found


def _convert(library: str, ours: str, value: Any) -> Any:
    """Turn a value of theirs into one of ours."""
    if ours == "model.hidden":
        return tuple(int(width) for width in value)
    if ours == "model.activation":
        name = str(value).lower().replace("swish", "silu")
        if name not in ("elu", "relu", "silu", "tanh"):
            raise ValueError(name)
        return name
    if ours == "update.rate_schedule":
        adaptive = "KL" in str(value) if library == SKRL else value == "adaptive"
        return ("minibatch" if library == RSL_RL else "mini_epoch") if adaptive else "fixed"
    number = float(value)  # YAML reads 3e-4 as a text
    if ours == "update.critic_coef" and library != RL_GAMES:
        return 2 * number  # ours multiplies half the squared error, theirs all of it
    return number if isinstance(settings_of(TrainConfig())[ours], float) else int(number)


def _derived(library: str, leaves: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that follow from several of theirs, such as the number of minibatches from their size."""
    size = leaves.get("params.config.minibatch_size", leaves.get("batch_size"))
    envs, horizon = settings.get("num_envs"), settings.get("update.horizon")
    found: dict[str, Any] = {"update.rate_schedule": "fixed"} if library == SB3 else {}
    if isinstance(size, int) and isinstance(envs, int) and isinstance(horizon, int):
        found["update.minibatches"] = max(1, envs * horizon // size)
    if settings.get("model.lstm"):
        found["update.sequence"] = settings.get("update.sequence", horizon)
    return found


def _leaves(data: Mapping[str, Any], group: str = "") -> dict[str, Any]:
    """Settings by dotted name."""
    found: dict[str, Any] = {}
    for name, value in data.items():
        inside = isinstance(value, Mapping) and value
        found |= _leaves(value, f"{group}{name}.") if inside else {f"{group}{name}": value}
    return found
