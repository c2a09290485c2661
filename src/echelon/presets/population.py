"""Settings of PBT for short runs.

The settings of DexPBT are for billions of steps, with a check after each 1/166 of them and small mutations. A run of a
few million steps has time for some tens of checks, so each of them has to change more.
"""

from echelon.config import PbtConfig

MEMBERS = 6


def short_run_pbt(env_steps: int, members: int = MEMBERS) -> PbtConfig:
    """For a run of `env_steps` environment steps in all: up to sixty checks, and larger steps in between."""
    own = env_steps // members
    return PbtConfig(
        interval=max(1, own // 60),
        initial_delay=own // 15,
        wait=own // 15,
        mutation_probability=0.5,
        mutation_low=1.2,
        mutation_high=3.0,
    )
