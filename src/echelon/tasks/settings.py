"""Settings that tasks share. Like every `settings.py`, it imports neither torch nor a simulator.

Where the paper contradicts itself or its released code, the task's `settings.py` says which it follows, and
`docs/paper-vs-code.md` why. `policies` stays unset: six for SAPG and CPO as in the paper, one for PPO.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Literal

import tyro

from echelon.algorithms import AdversaryConfig, PbtConfig, Preset
from echelon.config import ModelConfig, RandomiseConfig, TaskConfig, UpdateConfig
from echelon.config.ranges import COUNT
from echelon.config.schema import PLAIN


@dataclass(frozen=True)
class MujocoTaskConfig(TaskConfig):
    """Settings that every MuJoCo task has."""

    episode_length: Annotated[int, COUNT.up_to(10**5)] = 250
    """Control steps after which an episode is truncated."""
    contacts: Annotated[int | None, COUNT] = None
    """Contact buffer of a simulation on CUDA; found by a probe if unset, and then stored with the run."""
    constraints: Annotated[int | None, COUNT] = None
    """Constraint rows in the buffer of a simulation on CUDA; found and stored as `contacts` is."""
    physics: Literal["fused", "stock"] = "fused"
    """On CUDA: a few kernels for a whole substep, or MuJoCo Warp's own, for comparison."""
    randomise: Annotated[RandomiseConfig, tyro.conf.arg(prefix_name=False)] = PLAIN
    """Domain randomisation: lowest and highest value, between which each environment draws at every reset."""


MUTABLE = ("clip", "mini_epochs", "discount", "critic_coef", "bounds_coef", "grad_norm")
ARM_PBT = PbtConfig(mutable=(*MUTABLE, "kl_threshold"))
"""The released files of AllegroKuka and Franka mutate neither learning rate nor entropy bonus."""
NUM_ENVS = 24_576
PAPER = Preset(num_envs=NUM_ENVS, checkpoint_every=1_000, update=UpdateConfig(kl_rows="no_pull"))
"""The rows that agree in most of the paper's four tables, and those only the released code states; most are defaults.
A test compares every preset with the tables."""

LOCOMOTION = replace(
    PAPER,
    model=ModelConfig(hidden=(768, 512, 256)),
    update=replace(
        PAPER.update,
        kl_threshold=0.008,
        rate_schedule="minibatch",  # the released configs do not ask for once per mini-epoch
        entropy_scale=0.002,
    ),
    adversary=AdversaryConfig(hidden=(768, 512, 256)),
    pbt=PbtConfig(mutable=(*MUTABLE, "learning_rate", "entropy_coef", "reward_scale")),  # as in the released files
)
"""The paper's fourth table: Humanoid and Anymal."""
