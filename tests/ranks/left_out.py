"""Statistics that ranks could forget to exchange: by name, the function in question and one that forgets."""

from typing import Any

import torch
from torch import Tensor

from echelon.diagnostics.propositions import ess_rate
from echelon.learning import targets
from echelon.learning.optimizer import Adam
from echelon.models.actor_critic import ActorCritic
from echelon.ranks import ALONE, Ranks
from echelon.ranks.together import Together
from echelon.rollout.episodes import Episodes

MERGE, OBJECTIVE, METRICS = ActorCritic.merge_observations, Episodes.objective, Episodes.metrics
MERGE_VALUES, CENTRE = targets.merge_values, targets._centre


def gradient(self: Together, buffer: Tensor, rider: Tensor) -> Tensor:
    return self.mean(rider)


def kl(self: Together, buffer: Tensor, rider: Tensor) -> Tensor:
    self.mean_(buffer)
    return rider


MEAN = Together.mean


def single(self: Together, x: Tensor) -> Tensor:
    """Scores and metrics are float32 also in runs in float64, and nothing else is."""
    return x if x.dtype is torch.float32 else MEAN(self, x)


def discriminator(self: Adam, loss: Tensor) -> Tensor:
    self.backward(loss)
    return self.descend()


def alone(function: Any) -> Any:
    """A method of episodes, as if this rank were alone."""

    def forgets(self: Episodes, *arguments: Any) -> Any:
        ranks, self.layout.ranks = self.layout.ranks, ALONE
        try:
            return function(self, *arguments)
        finally:
            self.layout.ranks = ranks

    return forgets


PACKAGE = "echelon"
TOGETHER = f"{PACKAGE}.ranks.together.Together"
LEFT_OUT: dict[str, tuple[str, Any]] = {
    "nothing": (f"{TOGETHER}.first", Together.first),
    "gradient": (f"{TOGETHER}.mean_with", gradient),
    "KL of the rate rule": (f"{TOGETHER}.mean_with", kl),
    "advantage moments": (f"{TOGETHER}.std_mean", Ranks.std_mean),
    "centres of advantages": (f"{PACKAGE}.learning.targets._centre", lambda x, ranks: CENTRE(x, ALONE)),
    "value normaliser": (f"{PACKAGE}.learning.update.merge_values", lambda n, v, r, ranks: MERGE_VALUES(n, v, r)),
    "observation normaliser": (
        f"{PACKAGE}.models.actor_critic.ActorCritic.merge_observations",
        lambda self, obs, ranks: MERGE(self, obs),
    ),
    "drawn follower": (f"{TOGETHER}.common_generator", lambda self, own, seed, device: own),
    "mean weight of the pull": (f"{PACKAGE}.learning.batch.Batch.ranks", ALONE),
    "gradient of the discriminator": (f"{PACKAGE}.learning.optimizer.Adam.step", discriminator),
    "objectives of a population": (f"{TOGETHER}.mean", single),
    "best of a population": (f"{PACKAGE}.rollout.episodes.Episodes.objective", alone(OBJECTIVE)),
    "scores of episodes": (f"{PACKAGE}.rollout.episodes.Episodes.metrics", alone(METRICS)),
    "ESS of the diagnostics": (f"{PACKAGE}.diagnostics.measure.ess_rate", lambda log_w, ranks: ess_rate(log_w)),
}
