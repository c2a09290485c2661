"""The loss of a minibatch: an algorithm's actor terms, and the critic, bounds and entropy terms all of them share."""

from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor

from echelon.config import TrainConfig
from echelon.learning.batch import Batch
from echelon.learning.losses import bounds_loss, value_loss
from echelon.models import gaussian


@dataclass
class ActorLoss:
    """What an algorithm makes of a batch."""

    terms: dict[str, Tensor]
    """Loss by group: each a 0-d sum over that group's rows, weights included."""
    metrics: dict[str, Tensor] = field(default_factory=dict)
    """0-d tensors worth logging."""


@dataclass(frozen=True)
class Algorithm:
    """PPO, SAPG and CPO differ by these values and in nothing else."""

    name: str
    borrows: bool
    """The leader learns from a drawn follower's rows."""
    pulls: bool
    """Followers are pulled towards the leader on its rows."""
    actor_loss: Callable[[Batch, TrainConfig], ActorLoss]
    reads_leader: Callable[[TrainConfig], bool] = lambda config: False
    """Whether the loss needs the leader's log-probability of the followers' own rows."""


@dataclass
class Loss:
    """0-d tensors."""

    total: Tensor
    metrics: dict[str, Tensor]


def total_loss(batch: Batch, actor: ActorLoss, config: TrainConfig, entropy_coefs: Tensor) -> Loss:
    """L = L_actor + ½·c_v·L_V + c_b·L_b - η·H, every term a sum over its rows divided by all rows of the minibatch.

    Critic, bounds and entropy act on own and borrowed rows only. So in CPO, whose minibatches are half pull rows, they
    weigh less than in SAPG, exactly as in the released code; `loss_scale` undoes it.
    """
    update, rows = config.update, batch.learns
    output = batch.output
    actor_sum = sum(actor.terms.values()) / batch.rows
    critic = value_loss(output.value[:, rows], batch.old_value[:, rows], batch.returns[:, rows], update.clip)
    critic = critic.sum() / batch.rows
    bounds = bounds_loss(output.mean[:, rows]).sum() / batch.rows
    # A policy's entropy is the same in all its rows, so its bonus counts as often as it has rows.
    ids = batch.policy_id[rows]
    bonus = (entropy_coefs[ids] * gaussian.entropy(output.log_std[rows])).mean() * (len(ids) / sum(batch.counts))
    total = actor_sum + 0.5 * update.critic_coef * critic + update.bounds_coef * bounds - bonus
    metrics = {"loss/actor": actor_sum, "loss/critic": critic, "loss/bounds": bounds, "loss/entropy": -bonus}
    metrics |= {f"loss/{group}": term / batch.rows for group, term in actor.terms.items()}
    return Loss(config.ensemble.loss_scale * total, metrics | actor.metrics)
