"""Flock: a leader that learns from everybody's rows, and followers that keep their distance from it.

The leader's loss is SAPG's with the rows of all followers, each under its own importance ratio. That is worth little
where followers are far away, and nothing new where they are all alike. So each follower i is held at the distance d*_i
that was asked for, by a term on its own states:

    L_i = c · e_i · d_i / max(d_i, d*_i/10)      both factors of d_i without gradient
    d_i = E_s[ Σ (μ_i(s) - μ_leader(s))² / (2σ_leader²) ]
    e_i = ln(d_i/d*_i), shortened by a tolerance of 0.1 and limited to ±1

Its gradient pulls a follower that is too far and pushes one that is too near, in every optimizer step, by the logarithm
of how far off it is, and leaves it alone within the tolerance. It pushes no mean that is out of the actions' range
already: beyond it actions are clipped, distance costs nothing, and all policies would leave together. The leader's
means are constants in it. d_i is the means' part of KL(π_i ‖ π_leader): sigmas have a bound of their own. There is no
pull to weigh, no temperature and no discriminator; what is asked for is one distance, or none. Without the push
(`formation.push`) it is the farthest a follower may stand, and e_i is never below 0.
"""

import torch
from torch import Tensor

from echelon.algorithms.algorithm import Algorithm
from echelon.algorithms.formation import asked_distances
from echelon.algorithms.ppo import own_term
from echelon.algorithms.sapg import BORROWS_ALL, borrow_term
from echelon.config import TrainConfig
from echelon.learning.batch import Batch, total
from echelon.learning.losses import SOFT_BOUND
from echelon.learning.objective import ActorLoss
from echelon.learning.settings import entropy_ladder
from echelon.rollout.layout import Layout

TOLERANCE = 0.1
"""How far off ln d may be before anything is done about it."""


def actor_loss(batch: Batch, config: TrainConfig) -> ActorLoss:
    """PPO's loss on everybody's own rows, the leader's on the followers', and the formation."""
    terms = {"own": own_term(batch, config)}
    if BORROWS_ALL.name not in batch.plan.columns:  # one policy flies alone
        return ActorLoss(terms)
    terms[BORROWS_ALL.name] = borrow_term(batch, config)
    if "distance" not in batch.settings.vectors:
        return ActorLoss(terms)
    (distance, inside), asked = distances(batch), asked_of(batch)
    found = batch.ranks.mean(distance.detach())  # of all ranks' rows; their gradients are averaged anyway
    error = (found / asked).log()
    if config.formation.push:
        moved = torch.where(error < 0, inside, distance)
    else:
        error, moved = error.clamp(min=0), distance
    off = error.sign() * (error.abs() - TOLERANCE).clamp(0, 1)
    held = off * moved / torch.maximum(found, 0.1 * asked)
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


def asked_of(batch: Batch) -> Tensor:
    """d* of every follower `[1, K-1]`; networks are alike."""
    return batch.settings.vectors["distance"][None, 1 : batch.plan.layout.each].to(batch.log_prob.dtype)


def vectors(config: TrainConfig, layout: Layout) -> dict[str, Tensor]:
    """Entropy bonuses, and the distance of each policy; the leader's counts for nothing."""
    found = entropy_ladder(config.update, layout)
    if config.formation.distance and layout.each > 1:
        asked = [0.0, *asked_distances(config.formation, layout.each - 1, config.update.clip)] * layout.networks
        found["distance"] = torch.tensor(asked, dtype=torch.float64, device=layout.device)
    return found


FLOCK = Algorithm("flock", actor_loss, groups=lambda config: (BORROWS_ALL,), vectors=vectors, colour=4)
