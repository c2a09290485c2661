"""The loss of a minibatch: an algorithm's actor terms, and the critic, bounds and entropy terms all of them share."""

from dataclasses import dataclass, field

from torch import Tensor

from echelon.config import TrainConfig
from echelon.learning.batch import Batch, total
from echelon.learning.losses import bounds_loss, value_loss
from echelon.models import gaussian


@dataclass
class ActorLoss:
    """An algorithm's loss of a batch."""

    terms: dict[str, Tensor]
    """Loss by group: each a sum `[G]` over that group's rows of a network, weights included."""
    metrics: dict[str, Tensor] = field(default_factory=dict)
    """`[G]` tensors to log."""


@dataclass
class Loss:
    """`[G]` tensors."""

    total: Tensor
    metrics: dict[str, Tensor]


def total_loss(batch: Batch, actor: ActorLoss, config: TrainConfig) -> Loss:
    """L = L_actor + ½·c_v·L_V + c_b·L_b - η·H, every term a sum over its rows divided by all rows of the minibatch.

    Critic, bounds and entropy act on own and borrowed rows only. So in CPO, whose minibatches are half pull rows, they
    weigh less than in SAPG, exactly as in the released code; `loss_scale` undoes it.
    """
    rows, output = batch.learns, batch.output
    actor_sum = sum(actor.terms.values()) / batch.rows
    clip = batch.setting("clip", rows)
    critic = value_loss(output.value[..., rows], batch.old_value[..., rows], batch.returns[..., rows], clip)
    bounds = bounds_loss(output.mean[:, :, rows])
    # A policy's entropy is the same in all its rows, so its bonus counts as often as it has rows.
    entropy = gaussian.entropy(output.log_std)  # [G, B], or [1, 1] with one policy
    entropy = entropy[:, rows] if entropy.shape[1] > 1 else entropy
    share = (rows.stop - rows.start) / batch.log_prob.shape[2]
    bonus = (batch.setting("entropy_coef", rows) * entropy).mean(1) * share
    critic_mean, critic_term = _means(critic, batch, "critic_coef")
    bounds_mean, bounds_term = _means(bounds, batch, "bounds_coef")
    weighted = actor_sum + 0.5 * critic_term + bounds_term - bonus
    metrics = {"loss/actor": actor_sum, "loss/critic": critic_mean, "loss/bounds": bounds_mean, "loss/entropy": -bonus}
    metrics |= {f"loss/{group}": term / batch.rows for group, term in actor.terms.items()}
    return Loss(config.ensemble.loss_scale * weighted, metrics | actor.metrics)


def _means(x: Tensor, batch: Batch, coef: str) -> tuple[Tensor, Tensor]:
    """A term over all rows of the minibatch, without and with its coefficient: `[G]` each."""
    weight, mean = batch.setting(coef, batch.learns), total(x) / batch.rows
    if isinstance(weight, Tensor) and weight.dim():
        return mean, total(weight * x) / batch.rows
    return mean, weight * mean
