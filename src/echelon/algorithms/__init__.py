"""PPO, PBT, SAPG and CPO: a file each, holding what is its own."""

from echelon.algorithms.cpo import CPO
from echelon.algorithms.pbt import PBT
from echelon.algorithms.ppo import PPO
from echelon.algorithms.sapg import SAPG
from echelon.learning.objective import Algorithm

ALGORITHMS: dict[str, Algorithm] = {algorithm.name: algorithm for algorithm in (PPO, PBT, SAPG, CPO)}
