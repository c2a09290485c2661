"""A simulation that loses contacts still looks like one; one that went wrong begins anew. So say it, and what helps."""

from collections.abc import Callable, Mapping

from echelon.config import TrainConfig
from echelon.config.spelling import setting
from echelon.console.wording import figure

TOLERATED = 1e-3
"""Share of environment steps that may lose contacts or constraints without a warning."""
SILENCE = 50
"""Iterations between two warnings of a kind."""


class TroubleWatch:
    """Looks at every iteration's metrics for physics that cannot be trusted.

    That is steps in which contacts or constraints did not fit the engine, and simulations that went wrong numerically.
    """

    def __init__(self, config: TrainConfig, say: Callable[[str], None]) -> None:
        self._config, self._say = config, say
        self._steps = config.num_envs * config.update.horizon
        self._next_overflow = self._next_quarantine = 0.0
        self._quarantined, self._first = 0.0, 0.0
        """How many simulations since the last warning, and the iteration of the first of them."""

    def look(self, metrics: Mapping[str, float], last: bool = False) -> None:
        """After the `last` iteration, nothing waits for the end of a silence."""
        self._look_for_overflow(metrics)
        self._look_for_quarantine(metrics, last)

    def _look_for_overflow(self, metrics: Mapping[str, float]) -> None:
        share, iteration = metrics.get("env/overflow", 0.0) / self._steps, metrics["iteration"]
        if share <= TOLERATED or iteration < self._next_overflow:
            return
        self._next_overflow = iteration + SILENCE
        self._say(
            f"WARNING: in {figure(100 * share)} % of the environment steps of iteration {iteration:.0f}, contacts or "
            f"constraints did not fit and were lost: physics is wrong there{self._advice()}"
        )

    def _look_for_quarantine(self, metrics: Mapping[str, float], last: bool) -> None:
        """Every simulation is told of, those of a silence at its end."""
        found, iteration = metrics.get("env/quarantined", 0.0), metrics["iteration"]
        if found > 0 and not self._quarantined:
            self._first = iteration
        self._quarantined += found
        if not self._quarantined or (iteration < self._next_quarantine and not last):
            return
        self._next_quarantine = iteration + SILENCE
        since = f"iterations {self._first:.0f} to" if self._first < iteration else "iteration"
        number = "1 simulation" if self._quarantined == 1 else f"{self._quarantined:,.0f} simulations"
        self._say(
            f"WARNING: in {since} {iteration:.0f}, {number} went wrong numerically or became impossibly fast and began "
            "anew, with reward 0 for that step; a few do no harm, many mean that the physics is unstable"
        )
        self._quarantined = 0.0

    def _advice(self) -> str:
        """How to get more room, if the task's settings say how much there is."""
        names = ("contacts", "constraints")
        room = {name: getattr(self._config.env, name, None) for name in names}
        flags = " ".join(setting(f"env.{name}", 2 * value) for name, value in room.items() if value)
        return f"; stop, and resume with {flags}" if flags else ""
