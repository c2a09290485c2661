"""Soft actor-critic: one policy that learns from a replay of everything it did (`docs/sac.md`)."""

from echelon.algorithms import SacTrainConfig
from echelon.algorithms.algorithm import Algorithm, OffPolicy
from echelon.algorithms.sac.learner import SacLearner
from echelon.algorithms.sac.networks import SacNetworks

SAC = Algorithm(
    "sac",
    None,
    settings=SacTrainConfig,
    policies=1,
    one_policy=True,
    off_policy=OffPolicy(SacNetworks, SacLearner),
    colour=4,
)
