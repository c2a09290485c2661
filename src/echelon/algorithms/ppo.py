"""Proximal Policy Optimization: each policy learns from the rows it collected.

Section 3.2 of the CPO paper, `L_PPO`. The same term serves every policy's own rows in SAPG and CPO.
"""

from torch import Tensor

from echelon.algorithms.algorithm import Algorithm
from echelon.config import TrainConfig
from echelon.learning.batch import Batch, total
from echelon.learning.losses import surrogate
from echelon.learning.objective import ActorLoss


def actor_loss(batch: Batch, config: TrainConfig) -> ActorLoss:
    """`L_PPO(θ)`."""
    return ActorLoss({"own": own_term(batch, config)})


def own_term(batch: Batch, config: TrainConfig) -> Tensor:
    """Σ -min(ρÂ, clip(ρ, 1-ε, 1+ε)Â) with ρ = π_θ(a|s)/π_old(a|s)."""
    own = batch.own
    loss = surrogate(batch.log_ratio[..., own], batch.advantage[..., own], batch.setting("clip", own))
    return config.ensemble.own_weight * total(loss)


PPO = Algorithm("ppo", actor_loss, policies=1, one_policy=True, colour=2)
