"""Stop a run whose numbers are not finite before they are saved, and say what caused it."""

import math
from collections.abc import Mapping

from echelon.envs.checks import find_fault
from echelon.errors import UserError
from echelon.models.normaliser import Normaliser
from echelon.runs.folder import RunFolder
from echelon.training.trainer import Trainer

CHECK_EVERY = 50
"""Iterations between two looks at the magnitudes of observations and rewards; a look waits for the device."""


def require_finite(trainer: Trainer, metrics: Mapping[str, float], folder: RunFolder) -> None:
    """Stop where learning has diverged. A population outlives members that diverge: they are replaced."""
    if trainer.selection is not None:
        return
    for name in ("loss/actor", "loss/critic"):
        if not math.isfinite(metrics[name]):
            raise diverged(trainer, f"{name} is not finite", folder)
    if trainer.iteration % CHECK_EVERY == 0 and environment_fault(trainer):
        raise diverged(trainer, "the normalisers have learned from it", folder)


def diverged(trainer: Trainer, what: str, folder: RunFolder) -> UserError:
    """The error for a run that cannot go on, with its cause. A collective call: all ranks make it."""
    fault = environment_fault(trainer)
    before = f"any checkpoint in {folder.path} is from before"
    if fault:
        text = (
            f"{fault}, seen in iteration {trainer.iteration}: {what}; {before}; "
            "mend the environment, and the same command goes on from there"
        )
    else:
        text = (
            f"learning diverged in iteration {trainer.iteration}: {what}; {before}; "
            "start anew with --out and a smaller --update.learning-rate or reward"
        )
    return trainer.ranks.said_once(UserError(text))


def environment_fault(trainer: Trainer) -> str | None:
    """A fault in the observations or rewards of any rank's last rollout, or left in the normalisers by an earlier one.
    A collective call: all ranks make it."""
    return next((fault for fault in trainer.ranks.gather(_own_fault(trainer)) if fault), None)


def _own_fault(trainer: Trainer) -> str | None:
    rollout = trainer.collector.rollout
    for name, x in rollout.obs.items():
        if x.is_floating_point() and (fault := find_fault(f"observation {name}", x)):
            return fault
    if fault := find_fault("reward", rollout.reward, abs(trainer.config.update.reward_scale)):
        return fault
    for name, normaliser in trainer.model.obs_norm.items():
        assert isinstance(normaliser, Normaliser)
        if find_fault(name, normaliser.std[None]):
            return f"the environment gave an observation {name} that is not finite, or beyond all measure"
    return None
