"""Translate settings of other libraries' PPO into ours, name by name. `docs/coming-from.md` explains this table."""

import re
from collections.abc import Mapping
from typing import Any

from echelon.config.checks import settings_of
from echelon.config.schema import TrainConfig
from echelon.errors import UserError

LIBRARIES = {
    "rl_games": ("params.config.e_clip", r"params\.(config\.(reward_shaper\.)?|network\.(mlp\.)?)?"),
    "rsl_rl": ("num_steps_per_env", r"(algorithm|policy|actor)\.(distribution_cfg\.)?"),
    "skrl": ("agent.rollouts", r"agent\.(learning_rate_scheduler_kwargs\.)?"),
    "Stable-Baselines3": ("n_steps", r"policy_kwargs\."),
}
"""A setting that only this library's files have, and its groups of settings, whose names the table leaves out."""
TABLE = """
ours                  rl_games            rsl_rl                         skrl                     Stable-Baselines3
seed                  seed                seed                           seed                     seed
num_envs              num_actors          -                              -                        n_envs
iterations            max_epochs          max_iterations                 -                        -
env_steps             total_timesteps     timesteps,steps                -                        n_timesteps
checkpoint_every      save_frequency      save_interval                  -                        -
model.hidden          units               actor_hidden_dims,hidden_dims  -                        net_arch
model.lstm            rnn.units           rnn_hidden_dim                 -                        -
model.activation      activation          activation                     -                        -
model.initial_sigma   -                   init_noise_std,init_std        -                        -
update.horizon        horizon_length      num_steps_per_env              rollouts                 n_steps
update.sequence       seq_length,seq_len  -                              -                        -
update.mini_epochs    mini_epochs         num_learning_epochs            learning_epochs          n_epochs
update.minibatches    -                   num_mini_batches               mini_batches             -
update.discount       gamma               gamma                          discount_factor          gamma
update.gae_lambda     tau                 lam                            lambda                   gae_lambda
update.clip           e_clip              clip_param                     ratio_clip               clip_range
update.critic_coef    critic_coef         value_loss_coef                value_loss_scale         vf_coef
update.entropy_coef   entropy_coef        entropy_coef                   entropy_loss_scale       ent_coef
update.bounds_coef    bounds_loss_coef    -                              -                        -
update.learning_rate  learning_rate       learning_rate,lr               learning_rate            learning_rate
update.rate_schedule  lr_schedule         schedule                       learning_rate_scheduler  -
update.kl_threshold   kl_threshold        desired_kl                     kl_threshold             -
update.grad_norm      grad_norm           max_grad_norm                  grad_norm_clip           max_grad_norm
update.reward_scale   scale_value         -                              rewards_shaper_scale     -
"""
ROWS = [[cell.split(",") for cell in line.split()] for line in TABLE.strip().splitlines()[1:]]


def known_elsewhere_as(name: str) -> str | None:
    """Our setting for a name that other libraries give it (`gamma`, `e_clip`, `lr`), or None."""
    return next((ours for (ours,), *theirs in ROWS if any(name in names for names in theirs)), None)


def translate(data: Mapping[str, Any]) -> tuple[str, dict[str, Any], list[str]]:
    """The library, recognised by its names; its settings in ours; and names of its settings that have none here."""
    given = settings_of(data)
    library = next((name for name, (mark, _) in LIBRARIES.items() if mark in given), None)
    if library is None:
        marks = ", ".join(f"{mark} ({name})" for name, (mark, _) in LIBRARIES.items())
        raise UserError(f"these are not settings of a known library: none of {marks} is among them")
    column = 1 + list(LIBRARIES).index(library)
    names = {name: row[0][0] for row in ROWS for name in row[column]}
    settings: dict[str, Any] = {"algo": "ppo"}
    if library == "Stable-Baselines3":
        settings["update.rate_schedule"] = "fixed"
    others: list[str] = []
    for full, value in given.items():
        name = names.get(re.sub(f"^({LIBRARIES[library][1]})", "", full))
        if name is None:
            others.append(full)
        elif value is not None:
            try:
                settings[name] = _convert(library, name, value)
            except (ArithmeticError, TypeError, ValueError):
                raise UserError(f"{full} is {value!r}, which cannot be read as {name}; change it") from None
    envs, horizon = settings.get("num_envs"), settings.get("update.horizon")
    for rows in {"params.config.minibatch_size", "batch_size"} & {*others}:
        if isinstance(size := given[rows], int) and size > 0 and envs and horizon:
            settings["update.minibatches"] = max(1, envs * horizon // size)
            others.remove(rows)
    if settings.get("model.lstm"):
        settings.setdefault("update.sequence", horizon)
    return library, settings, others


def _convert(library: str, ours: str, value: Any) -> Any:
    """Turn a value of theirs into one of ours."""
    if ours == "model.hidden":
        return tuple(int(width) for width in value)
    if ours == "model.activation":
        return str(value).lower().replace("swish", "silu")
    if ours == "update.rate_schedule":
        adaptive = value == "adaptive" or "KL" in str(value)
        return ("minibatch" if library == "rsl_rl" else "mini_epoch") if adaptive else "fixed"
    number = float(value)  # YAML reads 3e-4 as a text
    if ours == "update.critic_coef" and library != "rl_games":
        return 2 * number  # ours multiplies half the squared error, theirs all of it
    return number if isinstance(settings_of(TrainConfig())[ours], float) else int(number)
