"""Flock: an algorithm from outside the package. The leader learns from everybody's rows, and followers keep a distance.

    python examples/flock.py CartpoleSwingup --num-envs 252 --iterations 50 --formation.ess 0.8

The leader's loss is SAPG's with the rows of all followers. They are worth little where followers are far away, and
nothing new where they are all alike. So each follower i is held at the distance d*_i that was asked for, by a term on
its own states:

    L_i = c · e_i · d_i / max(d_i, d*_i/10)      both factors of d_i without gradient
    d_i = E_s[ Σ (μ_i(s) - μ_leader(s))² / (2σ_leader²) ]
    e_i = ln(d_i/d*_i), shortened by a tolerance of 0.1 and limited to ±1

Its gradient pulls a follower that is too far and pushes one that is too near, by the logarithm of how far off it is.
It pushes no mean that is out of the actions' range already: beyond it actions are clipped, distance costs nothing, and
all policies would leave together. docs/flock.md says what was learned with it.
"""

import math
import sys
from dataclasses import dataclass, field
from typing import Annotated

import torch
from torch import Tensor

from echelon import cli
from echelon.algorithms import Algorithm, register
from echelon.algorithms.ppo import own_term
from echelon.algorithms.sapg import BORROWS_ALL, borrow_term
from echelon.config import TrainConfig
from echelon.config.ranges import NOT_NEGATIVE, Range
from echelon.learning.batch import Batch, total
from echelon.learning.losses import SOFT_BOUND
from echelon.learning.objective import ActorLoss

TOLERANCE = 0.1
"""How far off ln d may be before anything is done about it."""


@dataclass(frozen=True)
class FormationConfig:
    """How far followers stand from their leader."""

    ess: Annotated[float, Range(low=0, high=1, open_low=True, open_high=True)] = 0.9
    """ESS of a follower's rows under the leader. Between Gaussians of one covariance at distance d it is exp(-2d)."""
    strength: Annotated[float, NOT_NEGATIVE] = 0.2
    """Weight c of the term that keeps them there."""


@dataclass(frozen=True)
class FlockTrainConfig(TrainConfig):
    """One run of a flock: its own settings are flags and stand in config.json like all others."""

    formation: FormationConfig = field(default_factory=FormationConfig)


def actor_loss(batch: Batch, config: FlockTrainConfig) -> ActorLoss:
    """PPO's loss on everybody's own rows, the leader's on the followers', and the formation."""
    terms = {"own": own_term(batch, config)}
    if BORROWS_ALL.name not in batch.plan.columns:  # one policy flies alone
        return ActorLoss(terms)
    terms[BORROWS_ALL.name] = borrow_term(batch, config)
    (distance, inside), asked = distances(batch), -0.5 * math.log(config.formation.ess)
    found = batch.ranks.mean(distance.detach())  # of all ranks' rows; their gradients are averaged anyway
    error = (found / asked).log()
    off = error.sign() * (error.abs() - TOLERANCE).clamp(0, 1)
    held = off * torch.where(error < 0, inside, distance) / found.clamp(min=0.1 * asked)
    # A sum over rows as the other terms are, so that a follower's term weighs as much as it has rows.
    rows = [units * batch.log_prob.shape[0] for units in batch.plan.blocks.units[1:]]
    weighted = [n * x for n, x in zip(rows, held.unbind(1), strict=True)]
    terms["formation"] = config.formation.strength * total(torch.stack(weighted, dim=1)[None])
    metrics = {f"distance/policy_{k + 1}": found[:, k] for k in range(found.shape[1])}
    return ActorLoss(terms, metrics | {"distance/error": error.abs().mean(1)})


def distances(batch: Batch) -> tuple[Tensor, Tensor]:
    """d_i of every follower, on its own rows of the minibatch, and the part of it by means within the actions' range.

    Both `[G, K-1]`, with a gradient for the follower alone.
    """
    blocks, mean = batch.plan.blocks, batch.output.mean
    spread = torch.exp(-batch.output.log_std.detach())  # [G, B, A]
    whole, inside = [], []
    for units, offset, start in zip(blocks.units[1:], blocks.offsets[1:], blocks.starts, strict=True):
        own, leaders = slice(offset, offset + units), slice(start, start + units)
        apart = (mean[:, :, own] - mean[:, :, leaders].detach()) * spread[:, leaders]
        squares = 0.5 * apart.square()
        within = torch.where(mean[:, :, own].abs() <= SOFT_BOUND, squares, 0.0)
        whole.append(squares.sum(-1).mean((0, 2)))
        inside.append(within.sum(-1).mean((0, 2)))
    return torch.stack(whole, dim=1), torch.stack(inside, dim=1)


FLOCK = register(
    Algorithm("flock", actor_loss, groups=lambda config: (BORROWS_ALL,), settings=FlockTrainConfig, colour=4)
)

if __name__ == "__main__":
    sys.exit(cli.main(["train", *sys.argv[1:], "--algo", "flock"]))
