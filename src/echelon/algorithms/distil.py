"""Distillation: a student imitates a teacher in the states that the student itself visits (DAgger).

The teacher is the leader of another run, and may see more. It acts in all environments at first, then in fewer and
fewer (`training/teacher.py`).
"""

import torch

from echelon.algorithms import DistilTrainConfig
from echelon.algorithms.algorithm import Algorithm
from echelon.learning.batch import Batch, total
from echelon.learning.objective import ActorLoss


def actor_loss(batch: Batch, config: DistilTrainConfig) -> ActorLoss:
    """Σ KL(N(μ_teacher, σ) ‖ N(μ, σ)) = Σ (μ - μ_teacher)²/(2σ²), where σ is the student's and not learned."""
    assert batch.target is not None
    apart = batch.output.mean - batch.target
    kl = 0.5 * (apart * torch.exp(-batch.output.log_std.detach())).square().sum(-1)
    return ActorLoss({"own": total(kl)}, {"distil/error": apart.detach().square().mean((0, 2, 3)).sqrt()})


DISTIL = Algorithm(
    "distil",
    actor_loss,
    settings=DistilTrainConfig,
    policies=1,
    one_policy=True,
    teacher=lambda config: config.teacher,
    score=lambda metrics: -metrics["distil/error"],
)
