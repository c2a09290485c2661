"""A simulation that loses contacts still looks like one. So say it, loudly, and what helps."""

from collections.abc import Callable, Mapping

from echelon.config import TrainConfig
from echelon.flags import setting
from echelon.runs.wording import figure

TOLERATED = 1e-3
"""Share of environment steps that may lose contacts or constraints without a warning."""
SILENCE = 50
"""Iterations between two warnings."""


class TroubleWatch:
    """Looks at every iteration's metrics for steps in which contacts or constraints did not fit the engine."""

    def __init__(self, config: TrainConfig, say: Callable[[str], None]) -> None:
        self._config, self._say = config, say
        self._steps = config.num_envs * config.update.horizon
        self._next = 0.0

    def look(self, metrics: Mapping[str, float]) -> None:
        share, iteration = metrics.get("env/overflow", 0.0) / self._steps, metrics["iteration"]
        if share <= TOLERATED or iteration < self._next:
            return
        self._next = iteration + SILENCE
        self._say(
            f"WARNING: in {figure(100 * share)} % of the environment steps of iteration {iteration:.0f}, contacts or "
            f"constraints did not fit and were lost: physics is wrong there{self._advice()}"
        )

    def _advice(self) -> str:
        """How to get more room, if the task's settings say how much there is."""
        names = ("contacts", "constraints")
        room = {name: getattr(self._config.env, name, None) for name in names}
        flags = " ".join(setting(f"env.{name}", 2 * value) for name, value in room.items() if value)
        return f"; stop, and resume with {flags}" if flags else ""
