"""Split and Aggregate Policy Gradients: the leader also learns from a randomly drawn follower's rows.

Section 3.3 of the CPO paper. Followers are trained as by PPO, `L_SAPG,F_i`; the leader's loss `L_SAPG,L` has a second
expectation, over rows of follower j, with the importance ratio r_off = π_leader(a|s) / π_j,old(a|s).
"""

from torch import Tensor

from echelon.algorithms.ppo import own_term
from echelon.config import TrainConfig
from echelon.learning.batch import Batch
from echelon.learning.losses import surrogate
from echelon.learning.objective import ActorLoss, Algorithm


def actor_loss(batch: Batch, config: TrainConfig) -> ActorLoss:
    """`L_SAPG,L(θ, j)` and every `L_SAPG,F_i(θ)`."""
    return ActorLoss({"own": own_term(batch, config), "leader_borrows": borrow_term(batch, config)})


def borrow_term(batch: Batch, config: TrainConfig) -> Tensor:
    """Σ -min(r_off·A, clip(r_off)·A), the second expectation of `L_SAPG,L`, clipped around `centre`."""
    rows = batch.borrows
    centre = batch.centre[:, rows]
    loss = surrogate(batch.log_ratio[:, rows], batch.advantage[:, rows], config.update.clip, centre)
    return config.ensemble.borrow_weight * loss.sum()


SAPG = Algorithm("sapg", borrows=True, pulls=False, actor_loss=actor_loss)
