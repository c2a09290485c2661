"""PPO, PBT, SAPG and CPO: a file each, holding what is its own. `register` adds one of yours."""

from dataclasses import replace

from echelon.algorithms.algorithm import Algorithm
from echelon.algorithms.cpo import CPO
from echelon.algorithms.pbt import PBT
from echelon.algorithms.ppo import PPO
from echelon.algorithms.sapg import SAPG
from echelon.config import TrainConfig
from echelon.errors import UserError, nearest

ALGORITHMS: dict[str, Algorithm] = {algorithm.name: algorithm for algorithm in (PPO, PBT, SAPG, CPO)}


def register(algorithm: Algorithm) -> Algorithm:
    """Make an algorithm known by its name, as `algo` of a run's settings. The last one of a name counts."""
    ALGORITHMS[algorithm.name] = algorithm
    return algorithm


def find(name: str) -> Algorithm:
    """The algorithm of that name."""
    if name not in ALGORITHMS:
        known = ", ".join(ALGORITHMS)
        raise UserError(f"--algo takes one of {known}, not {name!r}{nearest(name, ALGORITHMS)}")
    return ALGORITHMS[name]


def complete(config: TrainConfig) -> TrainConfig:
    """The settings with the algorithm's own number of policies where they leave it open."""
    algorithm = find(config.algo)
    if config.policies is None:
        config = replace(config, policies=algorithm.policies)
    if algorithm.one_policy and config.policies != 1:
        raise UserError(f"{config.algo} trains one policy, not {config.policies}; drop --policies or choose --algo cpo")
    return config
