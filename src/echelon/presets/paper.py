"""What the paper's ten tasks have in common.

Where the paper contradicts itself or its released code, a family's file says which it follows. `docs/paper-vs-code.md`
gives the reasons. `policies` stays unset: six for SAPG and CPO as in the paper, one for PPO.
"""

from echelon.config import PullConfig, TrainConfig, UpdateConfig

NUM_ENVS = 24_576
POLICIES = 6
"""Of an ensemble or a population."""

PAPER = TrainConfig(
    algo="cpo",
    num_envs=NUM_ENVS,
    checkpoint_every=1_000,
    update=UpdateConfig(
        minibatch_envs=4.0,
        discount=0.99,
        gae_lambda=0.95,
        critic_coef=4.0,
        bounds_coef=1e-4,
        entropy_coef=0.0,
        grad_norm=1.0,
    ),
    pull=PullConfig(cap=100.0, reverse_temperature=0.0),
)
"""The rows that agree in all four of the paper's tables, and those only the released code states."""


def steps(iterations: int, horizon: int) -> int:
    """Environment steps in the released code's number of iterations."""
    return iterations * NUM_ENVS * horizon
