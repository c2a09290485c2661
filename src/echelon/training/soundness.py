"""Stop a run whose numbers are not finite before they are saved, and say what caused it."""

import math
from collections.abc import Mapping

from echelon.envs.checks import find_fault
from echelon.errors import UserError
from echelon.models.normaliser import Normaliser
from echelon.runs.checkpoint import unsound
from echelon.runs.folder import RunFolder
from echelon.training.trainer import Trainer

CHECK_EVERY = 50
"""Iterations between two checks of observations and rewards, each of which waits for the device."""
LOSSES = ("loss/actor", "loss/critic")


def require_finite(trainer: Trainer, metrics: Mapping[str, float], folder: RunFolder, saving: bool = False) -> None:
    """Raise a `UserError` where losses are not finite; every `CHECK_EVERY` iterations, and when `saving`, also where
    observations, rewards or anything learned are not. A collective call: all ranks make it.

    A population replaces members that diverge, so only its state as a whole is checked, before it is saved.
    """
    wrong = infinite_loss(trainer, metrics)
    if saving:
        wrong = wrong or unsound({"trainer": trainer.learned()})
    if wrong is not None:
        raise diverged(trainer, f"{wrong} is not finite", folder)
    if trainer.selection is None and (saving or trainer.iteration % CHECK_EVERY == 0) and environment_fault(trainer):
        raise diverged(trainer, "training would learn from it", folder)


def infinite_loss(trainer: Trainer, metrics: Mapping[str, float]) -> str | None:
    """The name of a loss that is not finite. A population has none: it outlives members that diverge."""
    wrong = (name for name in LOSSES if not math.isfinite(metrics[name]))
    return next(wrong, None) if trainer.selection is None else None


def diverged(trainer: Trainer, what: str, folder: RunFolder) -> UserError:
    """The error for a run that cannot continue, with its cause. A collective call: all ranks make it."""
    fault = environment_fault(trainer)
    before = f"any checkpoint in {folder.path} is from before"
    if fault:
        text = (
            f"{fault}, seen in iteration {trainer.iteration}: {what}; {before}; "
            "fix the environment and rerun the command to resume"
        )
    else:
        text = (
            f"learning diverged in iteration {trainer.iteration}: {what}; {before}; "
            "start again with --out and a smaller --update.learning-rate or reward"
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
            return f"the environment gave an observation {name} that is not finite, or larger than 1e10"
    return None
