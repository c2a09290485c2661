"""Settings that may be changed when a run is resumed, and the record of such changes in `config.json`."""

from dataclasses import fields
from pathlib import Path
from typing import Any

from echelon.algorithms import find
from echelon.config import TrainConfig
from echelon.config.checks import setting, settings_of
from echelon.errors import UserError

MAY_CHANGE = (
    *("source", "out", "preset"),  # source: where the code of a task lies, whose name is the same
    *("until", "start_from", "iterations", "env_steps", "envs_per_policy"),
    *("device", "threads", "capture", "fuse", "env.contacts", "env.constraints", "env.physics"),
    *("checkpoint_every", "checkpoint_minutes", "keep_checkpoints", "wandb", "diagnostics"),
)
"""Settings and groups that may differ on resume: none of them affects what was learned so far. Environments that
`envs_per_policy` gives to another policy continue where they are; a checkpoint says which `device` it needs."""
CHANGEABLE = ("update", "ensemble", "noise", "model.max_sigma", "model.obs_clip", "precision")
"""Settings and groups that can be changed during a run."""
FIXED = {
    **dict.fromkeys(("num_envs", "update.horizon"), "environment steps are counted by it"),
    **dict.fromkeys(("model", "obs", "history"), "it sets the shape of the networks"),
    **dict.fromkeys(("env", "env_arg"), "it would be another task"),
    "update.reward_scale": "values were learned in its units",
    "seed": "its random numbers are drawn already",
}
"""Why other settings cannot be changed, by setting or group."""


def differences(path: Path, stored: TrainConfig, given: TrainConfig, change: bool) -> list[dict[str, Any]]:
    """Raise a `UserError` for a setting that differs and may not; with `change`, return the differences instead."""
    before, now = settings_of(stored), settings_of(given)
    changes: list[dict[str, Any]] = []
    for name in before | now:
        old, new = before.get(name), now.get(name)
        if name in MAY_CHANGE or name.split(".")[0] in MAY_CHANGE or old == new:
            continue
        if name == "task":
            raise UserError(f"{path} holds a run of {old}, not of {new}; choose another folder with --out")
        was, wanted = ((" ".join(map(str, x)) or "none") if isinstance(x, tuple) else str(x) for x in (old, new))
        if not change:
            advice = f"; echelon train --resume {path} {setting(name, new)} resumes with the new value"
            raise UserError(
                f"{name} is {was} in {path} but {wanted} here; pass {setting(name, old)} to resume it, or "
                f"--out with another folder to start again{advice if _why_fixed(given, name) is None else ''}"
            )
        if reason := _why_fixed(given, name, old, new):
            told = f"{name} cannot be changed in {path}: {reason}"
            raise UserError(f"{told}; --from {path} begins a new run with its networks")
        changes.append({"setting": name, "before": was, "after": wanted, "iteration": None})
    return changes


def _why_fixed(config: TrainConfig, name: str, before: Any = None, now: Any = None) -> str | None:
    """Why a setting cannot change during a run; None if it can. The class of `config` decides about its own."""
    group = name.split(".")[0]
    if find(config.algo).selection is not None:
        return "the members of a population have values of their own"
    if group not in {field.name for field in fields(TrainConfig)}:
        return config.why_fixed(name, before, now)
    if name not in FIXED and (name in CHANGEABLE or group in CHANGEABLE):
        return None
    return FIXED.get(name) or FIXED.get(group) or "it would be another run"


def described(change: dict[str, Any]) -> str:
    """`update.clip 0.2 to 0.1 after iteration 120`."""
    when = f" after iteration {change['iteration']}" if isinstance(change["iteration"], int) else ""
    return f"{change['setting']} {change['before']} to {change['after']}{when}"
