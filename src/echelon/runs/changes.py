"""Settings that may be changed when a run is resumed, and the record of such changes in `config.json`."""

from dataclasses import fields
from typing import Any

from echelon.config import TrainConfig
from echelon.errors import UserError

CHANGEABLE = ("update", "ensemble", "model.max_sigma", "model.obs_clip", "precision")
"""Settings and groups that can be changed during a run."""
FIXED = {
    "update.horizon": "environment steps are counted by it",
    "num_envs": "environment steps are counted by it",
    "update.reward_scale": "values were learned in its units",
    "model": "the networks have their shape from it",
    "env": "it would be another task",
    "env_arg": "it would be another task",
    "seed": "its random numbers are drawn already",
}
"""Why other settings cannot be changed, by setting or group."""


def require_changeable(path: object, kind: type[TrainConfig], name: str, before: Any, now: Any) -> None:
    """Raise a `UserError` unless the setting can change in the middle of a run. An algorithm's class of settings,
    `kind`, decides about its own."""
    group = name.split(".")[0]
    if group not in {field.name for field in fields(TrainConfig)}:
        reason = kind.why_fixed(name, before, now)
    elif name not in FIXED and (name in CHANGEABLE or group in CHANGEABLE):
        reason = None
    else:
        reason = FIXED.get(name) or FIXED.get(group) or "it would be another run"
    if reason is None:
        return
    raise UserError(f"{name} cannot be changed in {path}: {reason}; --from {path} begins a new run with its networks")


def stored_changes(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The valid entries of `changes` in a `config.json`."""
    found = document.get("changes")
    keys = {"setting", "before", "after", "iteration"}
    return [x for x in found if isinstance(x, dict) and keys <= x.keys()] if isinstance(found, list) else []


def described(change: dict[str, Any]) -> str:
    """`update.clip 0.2 to 0.1 after iteration 120`."""
    when = f" after iteration {change['iteration']}" if isinstance(change["iteration"], int) else ""
    return f"{change['setting']} {change['before']} to {change['after']}{when}"
