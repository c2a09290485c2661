"""Settings of CPO. No torch: the command line reads them."""

from dataclasses import dataclass, field
from typing import Annotated

from echelon.config import TrainConfig
from echelon.config.ranges import COUNT, NOT_NEGATIVE, POSITIVE


@dataclass(frozen=True)
class PullConfig:
    """CPO's KL term: every follower imitates the leader's actions, weighted by its own advantage estimate."""

    beta: Annotated[float, NOT_NEGATIVE] = 1e-3
    """Weight β of the pull term; 0 leaves its rows in the plan."""
    temperature: Annotated[float, POSITIVE] = 0.2
    """λ_f in the weight exp(Â/λ_f). Smaller means a stronger pull here, because the weight is not normalised."""
    cap: Annotated[float, POSITIVE] = 100.0
    """Upper limit of that weight."""
    normalise: bool = False
    """Divide each follower's weights by their mean over the minibatch, so that β alone is the pull's strength."""
    use_advantage: bool = True
    """False sets every weight to 1: plain imitation of the leader."""
    reverse_temperature: Annotated[float, NOT_NEGATIVE] = 0.0
    """λ_r of the reverse-KL penalty in the followers' surrogate; 0 computes nothing."""


@dataclass(frozen=True)
class AdversaryConfig:
    """The adversarial reward: followers are paid for being told apart by a discriminator D(policy | s, a)."""

    coef: Annotated[float, NOT_NEGATIVE] = 0.0
    """λ_adv; 0 builds no discriminator."""
    hidden: Annotated[tuple[int, ...], COUNT.up_to(2**16)] = (1024, 1024, 512, 512)
    """Widths of the discriminator's ELU layers."""


@dataclass(frozen=True)
class CpoTrainConfig(TrainConfig):
    """One run of CPO."""

    pull: PullConfig = field(default_factory=PullConfig)
    adversary: AdversaryConfig = field(default_factory=AdversaryConfig)

    @classmethod
    def why_fixed(cls, name: str, before: object, now: object) -> str | None:
        if name == "adversary.hidden":
            return "it sets the shape of the discriminator"
        if name == "adversary.coef" and not (before and now):
            return "it would add or remove the discriminator"
        return None
