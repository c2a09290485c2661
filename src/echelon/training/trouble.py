"""Warnings about lost contacts, diverged simulations and settings that work against learning, with what to do."""

import math
from collections.abc import Callable, Mapping, Sequence

from echelon.algorithms.algorithm import Takeover
from echelon.config import TrainConfig
from echelon.config.spelling import setting
from echelon.console.wording import figure

LOST_CONTACTS_LIMIT = 1e-3
"""Share of environment steps that may lose contacts or constraints without a warning."""
WEAK_PULL = 0.98
"""Mean weight exp(Â/λ) below which to warn: it is at least 1 where Â has mean 0, up to sampling error."""
WARNING_INTERVAL = 50
"""Iterations between two warnings of the same kind."""


class TroubleWatch:
    """Checks every iteration's metrics for contacts or constraints that did not fit the engine's buffers, for
    simulations that diverged, for a pull that is turned off, and for actions that are nothing but noise."""

    def __init__(self, config: TrainConfig, say: Callable[[str], None]) -> None:
        self._config, self._say = config, say
        self._steps = config.steps_per_iteration
        self._next: dict[str, float] = {}
        """Iteration from which on a kind of warning may be given again."""
        self._quarantined, self._first = 0.0, 0.0
        """Simulations quarantined since the last warning, and the iteration of the first."""

    def check(self, metrics: Mapping[str, float], takeovers: Sequence[Takeover] = (), last: bool = False) -> None:
        """Check one iteration. After the `last` one, pending quarantines are reported at once."""
        self._check_overflow(metrics)
        self._check_quarantine(metrics, last)
        self._check_weak_pull(metrics)
        self._check_noise(metrics)
        for one in takeovers:
            if math.isnan(one.objective) and self._due("broken member", metrics["iteration"]):
                self._say(
                    f"WARNING: after iteration {metrics['iteration']}, member {one.member} was not finite and was "
                    f"replaced by a copy of member {one.donor}; the cause is a reward or an observation that is not "
                    "finite, or a learning rate too high"
                )

    def _due(self, kind: str, iteration: float) -> bool:
        """Whether `WARNING_INTERVAL` iterations have passed since the last warning of this kind; if so, count one."""
        if iteration < self._next.get(kind, 0.0):
            return False
        self._next[kind] = iteration + WARNING_INTERVAL
        return True

    def _check_overflow(self, metrics: Mapping[str, float]) -> None:
        share, iteration = metrics.get("env/overflow", 0.0) / self._steps, metrics["iteration"]
        if share <= LOST_CONTACTS_LIMIT or not self._due("overflow", iteration):
            return
        self._say(
            f"WARNING: in {figure(100 * share)} % of the environment steps of iteration {iteration:.0f}, contacts or "
            f"constraints did not fit and were lost: physics is wrong there{self._advice()}"
        )

    def _check_quarantine(self, metrics: Mapping[str, float], last: bool) -> None:
        """Report every quarantine, at most once per `WARNING_INTERVAL` iterations."""
        found, iteration = metrics.get("env/quarantined", 0.0), metrics["iteration"]
        if found > 0 and not self._quarantined:
            self._first = iteration
        self._quarantined += found
        if not self._quarantined or not (self._due("quarantine", iteration) or last):
            return
        since = f"iterations {self._first:.0f} to" if self._first < iteration else "iteration"
        number = "1 simulation" if self._quarantined == 1 else f"{self._quarantined:,.0f} simulations"
        self._say(
            f"WARNING: in {since} {iteration:.0f}, {number} went wrong numerically or became impossibly fast and "
            "restarted, with reward 0 for that step; a few do no harm, many mean that the physics is unstable: the "
            "first are in diagnostics/fault-*.npz"
        )
        self._quarantined = 0.0

    def _check_weak_pull(self, metrics: Mapping[str, float]) -> None:
        """Normalised together with all others, as the paper's are, advantages of pull rows need not have mean 0."""
        weight, iteration = metrics.get("pull/weight", 1.0), metrics["iteration"]
        centred = self._config.ensemble.advantage_scope != "global"
        if weight >= WEAK_PULL or not centred or not self._due("weak pull", iteration):
            return
        self._say(
            f"WARNING: in iteration {iteration:.0f} the pull's mean weight was {figure(weight)}, which centred "
            "advantages cannot give: something is wrong with them; please report it"
        )

    def _check_noise(self, metrics: Mapping[str, float]) -> None:
        bound, sigma, iteration = self._config.model.max_sigma, metrics.get("sigma/policy_0", 0.0), metrics["iteration"]
        if bound is None or sigma < 0.99 * bound or not self._due("noise", iteration):
            return
        self._say(
            f"WARNING: in iteration {iteration:.0f} the leader's sigma has reached its bound of {bound:g} "
            "(--model.max-sigma): it is paid for noise more than for what it learns; lower --update.entropy-coef or "
            "entropy-scale"
        )

    def _advice(self) -> str:
        """The flags that double the buffers, if the task has such settings."""
        names = ("contacts", "constraints")
        room = {name: getattr(self._config.env, name, None) for name in names}
        flags = " ".join(setting(f"env.{name}", 2 * value) for name, value in room.items() if value)
        return f"; stop, and resume with {flags}" if flags else ""
