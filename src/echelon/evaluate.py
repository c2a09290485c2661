"""Score every policy of a run: each environment counted once, deterministic and sampled."""

from dataclasses import dataclass, field
from typing import Literal

Mode = Literal["deterministic", "sampled"]


@dataclass(frozen=True)
class PolicyScore:
    """One policy, acting one way, over one episode in each of its environments."""

    policy: int
    """0 is the leader."""
    mode: Mode
    episodes: int
    return_mean: float
    return_std: float
    length_mean: float
    terminated: float
    """Share of episodes that ended before the time limit."""
    extra: dict[str, float] = field(default_factory=dict)
    """The task's own episode figures, averaged over episodes."""


@dataclass(frozen=True)
class Evaluation:
    """All policies of a run."""

    task: str
    algo: str
    iteration: int
    env_steps: int
    seed: int
    scores: tuple[PolicyScore, ...]
