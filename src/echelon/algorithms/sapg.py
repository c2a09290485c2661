"""Split and Aggregate Policy Gradients: the leader also learns from a randomly drawn follower's rows.

Section 3.3 of the CPO paper. Followers are trained as by PPO, `L_SAPG,F_i`; the leader's loss `L_SAPG,L` has a second
expectation, over rows of follower j, with the importance ratio r_off = π_leader(a|s) / π_j,old(a|s).
"""

from torch import Tensor

from echelon.algorithms.algorithm import Algorithm
from echelon.algorithms.ppo import own_term
from echelon.config import TrainConfig
from echelon.learning.batch import Batch, total
from echelon.learning.losses import surrogate
from echelon.learning.objective import ActorLoss
from echelon.learning.plans import Group, leader_from_all_followers, leader_from_one_follower

BORROWS = Group("leader_borrows", leader_from_one_follower)
BORROWS_OF_EACH = Group("leader_borrows", leader_from_all_followers, part=lambda policies: policies - 1)
BORROWS_ALL = Group("leader_borrows", leader_from_all_followers)


def borrows(config: TrainConfig) -> Group:
    """Rows that the leader borrows: one follower's, the same number from all followers together, or all."""
    return {"one": BORROWS, "part_of_each": BORROWS_OF_EACH, "all": BORROWS_ALL}[config.ensemble.borrow_from]


def actor_loss(batch: Batch, config: TrainConfig) -> ActorLoss:
    """`L_SAPG,L(θ, j)` and every `L_SAPG,F_i(θ)`."""
    return ActorLoss({"own": own_term(batch, config), "leader_borrows": borrow_term(batch, config)})


def borrow_term(batch: Batch, config: TrainConfig) -> Tensor:
    """Σ -min(r_off·A, clip(r_off)·A), the second expectation of `L_SAPG,L`, clipped around `centre`."""
    rows = batch.columns(BORROWS.name)
    log_ratio, advantage, centre = (x[..., rows] for x in (batch.log_ratio, batch.advantage, batch.centre))
    loss = surrogate(log_ratio, advantage, batch.setting("clip", rows), centre)
    return config.ensemble.borrow_weight * total(loss)


SAPG = Algorithm("sapg", actor_loss, groups=lambda config: (borrows(config),), colour=1)
