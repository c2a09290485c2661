"""Settings of PBT. No torch: the command line reads them."""

import typing
from dataclasses import dataclass, field
from typing import Annotated, Literal

from echelon.config import TrainConfig
from echelon.config.ranges import COUNT, FACTOR, FRACTION, NOT_NEGATIVE, SHARE

POLICIES = 6
"""Policies of an ensemble or members of a population, if unset."""
Mutable = Literal[
    "learning_rate",
    "clip",
    "mini_epochs",
    "discount",
    "critic_coef",
    "bounds_coef",
    "entropy_coef",
    "grad_norm",
    "kl_threshold",
]
"""Fields of `UpdateConfig` that may differ between the members of a population."""


@dataclass(frozen=True)
class PbtConfig:
    """Population-based training: at intervals the worst members copy the best and try other hyperparameters."""

    interval: Annotated[int, COUNT] = 20_000_000
    """Environment steps of each member between two checks."""
    initial_delay: Annotated[int, NOT_NEGATIVE] = 200_000_000
    """Environment steps of each member before any is replaced."""
    wait: Annotated[int, NOT_NEGATIVE] = 50_000_000
    """Environment steps a member is left alone after it was replaced."""
    worst_fraction: Annotated[float, FRACTION] = 0.3
    """Share of the members that may be replaced at a check, rounded up."""
    best_fraction: Annotated[float, FRACTION] = 0.3
    """Share of the members they copy, rounded up."""
    threshold_std: Annotated[float, NOT_NEGATIVE] = 0.5
    """A donor is copied if its objective is better by more than this many standard deviations of the population's."""
    threshold_share: Annotated[float, NOT_NEGATIVE] = 0.05
    """And by more than this share of the donor's objective; else the member keeps its weights."""
    mutation_probability: Annotated[float, SHARE] = 0.15
    """Chance of each hyperparameter of a replaced member to change."""
    mutation_low: Annotated[float, FACTOR] = 1.1
    """Smallest factor by which a hyperparameter is multiplied or divided."""
    mutation_high: Annotated[float, FACTOR] = 1.5
    """Largest such factor."""
    discount_high: Annotated[float, FACTOR] = 1.2
    """Largest factor for the discount, whose 1 - γ is multiplied or divided."""
    mutate_at_start: bool = True
    """Let every member start from hyperparameters that have mutated once."""
    mutable: tuple[Mutable, ...] = typing.get_args(Mutable)
    """Fields of `update` that mutate. Reward scales that the task declares as mutable do so too."""


@dataclass(frozen=True)
class PbtTrainConfig(TrainConfig):
    """One run of PBT."""

    pbt: PbtConfig = field(default_factory=PbtConfig)


def short_run_pbt(env_steps: int, members: int = POLICIES) -> PbtConfig:
    """Settings of PBT for a short run of `env_steps` environment steps in all: at most sixty checks, larger mutations.

    DexPBT's own are for billions of steps, with a check after each 1/166 of them. A run of a few million steps has time
    for some tens of checks, so each of them has to change more.
    """
    own = env_steps // members
    return PbtConfig(
        interval=max(1, own // 60),
        initial_delay=own // 15,
        wait=own // 15,
        mutation_probability=0.5,
        mutation_low=1.2,
        mutation_high=3.0,
    )
