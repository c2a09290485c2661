"""Settings of CPO. No torch: the command line reads them."""

from dataclasses import dataclass, field
from typing import ClassVar

from echelon.config import TrainConfig
from echelon.config.ranges import COUNT, NOT_NEGATIVE, POSITIVE, Range


@dataclass(frozen=True)
class PullConfig:
    """CPO's KL term: every follower imitates the leader's actions, weighted by its own advantage estimate."""

    beta: float = 1e-3
    """Weight β of the pull term; 0 leaves its rows in the plan."""
    temperature: float = 0.2
    """λ_f in the weight exp(Â/λ_f). Smaller means a stronger pull here, because the weight is not normalised."""
    cap: float = 100.0
    """Upper limit of that weight."""
    normalise: bool = False
    """Divide each follower's weights by their mean over the minibatch, so that β alone is the pull's strength."""
    use_advantage: bool = True
    """False sets every weight to 1: plain imitation of the leader."""
    reverse_temperature: float = 0.0
    """λ_r of the reverse-KL penalty in the followers' surrogate; 0 computes nothing."""


@dataclass(frozen=True)
class AdversaryConfig:
    """The adversarial reward: followers are paid for being told apart by a discriminator D(policy | s, a)."""

    coef: float = 0.0
    """λ_adv; 0 builds no discriminator."""
    hidden: tuple[int, ...] = (1024, 1024, 512, 512)
    """Widths of the discriminator's ELU layers."""


@dataclass(frozen=True)
class CpoTrainConfig(TrainConfig):
    """One run of CPO."""

    pull: PullConfig = field(default_factory=PullConfig)
    adversary: AdversaryConfig = field(default_factory=AdversaryConfig)

    ranges: ClassVar[dict[str, Range]] = {
        "pull.beta": NOT_NEGATIVE,
        "pull.temperature": POSITIVE,
        "pull.cap": POSITIVE,
        "pull.reverse_temperature": NOT_NEGATIVE,
        "adversary.coef": NOT_NEGATIVE,
        "adversary.hidden": COUNT.up_to(2**16),
    }

    @classmethod
    def why_fixed(cls, name: str, before: object, now: object) -> str | None:
        if name == "adversary.hidden":
            return "its discriminator has its shape from it"
        if name == "adversary.coef" and not (before and now):
            return "its discriminator would have to be made or thrown away"
        return None
