"""Warnings about lost contacts, diverged simulations and settings that work against learning, with what to do."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from echelon.algorithms.algorithm import Takeover
from echelon.config import TrainConfig
from echelon.config.checks import setting
from echelon.console.wording import figure

LOST_CONTACTS_LIMIT = 1e-3
"""Fraction of environment steps that may lose contacts or constraints without a warning."""
WEAK_PULL = 0.98
"""Mean weight exp(Â/λ) below which to warn: it is at least 1 where Â has mean 0, up to sampling error."""
WARNING_INTERVAL = 50
"""Iterations between two warnings of the same kind."""


class TroubleWatch:
    """Checks every iteration's metrics, and warns at most once per `WARNING_INTERVAL` iterations of each problem."""

    def __init__(self, config: TrainConfig, say: Callable[[str], None]) -> None:
        self._config, self._say = config, say
        self._next: dict[str, float] = {}
        """Iteration from which on a kind of warning may be given again."""
        self._quarantined, self._first = 0.0, 0.0
        """Simulations quarantined since the last warning, and the iteration of the first."""

    def check(self, metrics: Mapping[str, float], takeovers: Sequence[Takeover] = (), last: bool = False) -> None:
        """Check one iteration. After the `last` one, pending quarantines are reported at once."""
        iteration = metrics["iteration"]
        if metrics.get("env/quarantined", 0.0) > 0 and not self._quarantined:
            self._first = iteration
        self._quarantined += metrics.get("env/quarantined", 0.0)
        if last:
            self._next.pop("quarantined", None)
        for kind, text in self._problems(iteration, metrics, takeovers):
            if iteration >= self._next.get(kind, 0.0):
                self._next[kind] = iteration + WARNING_INTERVAL
                self._say(f"WARNING: {text}")
                self._quarantined = 0.0 if kind == "quarantined" else self._quarantined

    def _problems(
        self, iteration: float, metrics: Mapping[str, float], takeovers: Sequence[Takeover]
    ) -> Iterator[tuple[str, str]]:
        """Problems of an iteration, by kind and in words."""
        config = self._config
        lost = metrics.get("env/overflow", 0.0) / config.steps_per_iteration
        if lost > LOST_CONTACTS_LIMIT:
            yield (
                "lost",
                f"in {figure(100 * lost)} % of the environment steps of iteration {iteration:.0f}, contacts or "
                f"constraints did not fit and were lost: physics is wrong there{self._advice()}",
            )
        if self._quarantined:
            since = f"iterations {self._first:.0f} to" if self._first < iteration else "iteration"
            number = "1 simulation" if self._quarantined == 1 else f"{self._quarantined:,.0f} simulations"
            yield (
                "quarantined",
                f"in {since} {iteration:.0f}, {number} went wrong numerically or became impossibly fast and "
                "restarted, with reward 0 for that step; a few do no harm, many mean that the physics is unstable: the "
                "first are in diagnostics/fault-*.npz",
            )
        # Normalised together with all others, as the paper's are, advantages of pull rows need not have mean 0.
        weight, ensemble = metrics.get("pull/weight", 1.0), config.ensemble
        if weight < WEAK_PULL and ensemble.advantage_scope != "global":
            yield (
                "pull",
                f"in iteration {iteration:.0f} the pull's mean weight was {figure(weight)}, which centred "
                "advantages cannot give: something is wrong with them; please report it",
            )
        bound = config.model.max_sigma
        if bound is not None and metrics.get("sigma/policy_0", 0.0) >= 0.99 * bound:
            yield (
                "noise",
                f"in iteration {iteration:.0f} the leader's sigma has reached its bound of {bound:g} "
                "(--model.max-sigma): it is paid for noise more than for what it learns; lower --update.entropy-coef "
                "or entropy-scale",
            )
        for one in takeovers:
            if math.isnan(one.objective):
                yield (
                    "broken",
                    f"after iteration {iteration:.0f}, member {one.member} was not finite and was replaced by a copy "
                    f"of member {one.donor}; the cause is a reward or an observation that is not finite, or a learning "
                    "rate too high",
                )

    def _advice(self) -> str:
        """The flags that double the buffers, if the task has such settings."""
        room = {name: getattr(self._config.env, name, None) for name in ("contacts", "constraints")}
        flags = " ".join(setting(f"env.{name}", 2 * value) for name, value in room.items() if value)
        return f"; stop, and resume with {flags}" if flags else ""
