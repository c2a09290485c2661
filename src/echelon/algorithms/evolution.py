"""Who is replaced by whom in a population, and which hyperparameters mutate.

The rules of Petrenko et al. 2023, section III, as pure functions; `Evolution` applies them over a run. Every member has
taken the same number of environment steps, so a check looks at all of them at once. An objective that is not known yet
is NaN: such a member ranks behind all others, is never a donor, and is not replaced. A member whose network is not
finite has the objective `BROKEN`, the worst there is: it is replaced at once, whatever the rules say.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from echelon.algorithms import PbtConfig
from echelon.algorithms.algorithm import Takeover
from echelon.envs.contract import State
from echelon.learning.optimizer import HIGHEST, LOWEST

LOWEST_DISCARDED = 0.2
"""Share of the lowest objectives that the population's deviation leaves out: collapsed members would inflate it."""

BROKEN = -math.inf
"""Objective of a member whose weights, statistics or moments are not finite."""

Draw = Callable[[], float]
"""A random number, uniform in [0, 1)."""
Hyperparameters = Mapping[str, float]
"""A member's hyperparameters by name."""


def ranked(objectives: Sequence[float]) -> list[int]:
    """Members from the best to the worst; unknown ones behind the known, broken ones last, equal ones by index."""

    def place(i: int) -> tuple[int, float]:
        objective = objectives[i]
        return (0, -objective) if _known(objective) else (1 + (objective == BROKEN), 0.0)

    return sorted(range(len(objectives)), key=place)


def _known(objective: float) -> bool:
    return math.isfinite(objective)


def group_size(fraction: float, members: int) -> int:
    """`fraction` of the members, rounded up."""
    return min(members, math.ceil(fraction * members - 1e-9))  # tolerate rounding


def donors(objectives: Sequence[float], config: PbtConfig) -> list[int]:
    """The best members, whose objectives are known."""
    best = ranked(objectives)[: group_size(config.best_fraction, len(objectives))]
    return [i for i in best if _known(objectives[i])]


def candidates(objectives: Sequence[float], best_lately: Sequence[float], config: PbtConfig) -> list[int]:
    """Members to be replaced: among the worst now, and worse than every donor at all times since the last check.

    `best_lately` is each member's highest objective since then. No member is replaced before more than half of the
    members, and more than two if there are more, have an objective.
    """
    members = len(objectives)
    known = sum(map(_known, objectives))
    if known < min(members, max(2, members // 2) + 1):
        return []
    floor = min(objectives[i] for i in donors(objectives, config))
    worst = ranked(objectives)[members - group_size(config.worst_fraction, members) :]
    return sorted(i for i in worst if best_lately[i] < floor and _known(objectives[i]))


def deviation(objectives: Sequence[float]) -> float:
    """Standard deviation of the known objectives without the lowest fifth of them."""
    known = sorted(filter(_known, objectives))
    kept = known[int(LOWEST_DISCARDED * len(known) + 1e-9) :]
    mean = sum(kept) / len(kept)
    return math.sqrt(sum((x - mean) ** 2 for x in kept) / len(kept))


def worth_copying(own: float, donor: float, objectives: Sequence[float], config: PbtConfig) -> bool:
    """Whether the donor is better by both thresholds: noise alone must not spread one member's weights."""
    gain = donor - own
    return gain > config.threshold_std * deviation(objectives) and gain > config.threshold_share * abs(donor)


def mutate(values: Hyperparameters, draw: Draw, config: PbtConfig) -> dict[str, float]:
    """Hyperparameters, each of them changed with the configured probability and within its limits."""
    return {
        name: _changed(name, value, draw, config) if draw() < config.mutation_probability else value
        for name, value in values.items()
    }


def _changed(name: str, value: float, draw: Draw, config: PbtConfig) -> float:
    """Multiplied or divided by a random factor; `mini_epochs` moves by one, and for the discount 1 - γ is changed."""
    up = draw() < 0.5
    if name == "mini_epochs":
        return min(8.0, max(1.0, value + (1 if up else -1)))
    high = config.discount_high if name == "discount" else config.mutation_high
    factor = config.mutation_low + (high - config.mutation_low) * draw()
    if not up:
        factor = 1 / factor
    if name == "discount":
        return 1 - (1 - value) * factor
    low, high = {"clip": (0.01, 0.3), "learning_rate": (LOWEST, HIGHEST)}.get(name, (-math.inf, math.inf))
    return min(high, max(low, value * factor))


class Evolution:
    """Who is replaced by whom, over a run. Decides on the host and touches no network."""

    def __init__(self, policies: int, config: PbtConfig, seed: int) -> None:
        self.config = config
        self.generator = torch.Generator().manual_seed(seed)
        self.checks = 0
        self.best_lately = [-math.inf] * policies
        self.left_alone_since = [0] * policies
        """Environment steps of a member when it was last replaced."""

    def draw(self) -> float:
        return torch.rand((), generator=self.generator, dtype=torch.float64).item()

    def start(self, values: Sequence[Hyperparameters]) -> list[dict[str, float]]:
        """Mutate what every member begins with."""
        return [mutate(one, self.draw, self.config) for one in values]

    def observe(self, objectives: Sequence[float]) -> None:
        """Record an iteration's objectives."""
        known = zip(self.best_lately, objectives, strict=True)
        self.best_lately = [best if math.isnan(x) else max(best, x) for best, x in known]

    def replace_broken(
        self, steps: int, objectives: Sequence[float], values: Sequence[Hyperparameters]
    ) -> list[Takeover]:
        """Replace members whose networks are not finite by the best one. Its hyperparameters mutate: theirs did harm.

        Raises a `FloatingPointError` if no network is finite.
        """
        broken = [i for i, objective in enumerate(objectives) if objective == BROKEN]
        if len(broken) == len(objectives):
            raise FloatingPointError("no member of the population is finite")
        donor = ranked(objectives)[0]
        unknown = [math.nan if objective == BROKEN else objective for objective in objectives]
        return [self._replaced(steps, member, donor, donor, True, unknown, values) for member in broken]

    def due(self, steps: int) -> bool:
        """Whether another interval has passed, at this many environment steps of each member."""
        return steps // self.config.interval > self.checks

    def check(self, steps: int, objectives: Sequence[float], values: Sequence[Hyperparameters]) -> list[Takeover]:
        """Decide who is replaced, and begin another interval.

        Each member draws a donor, copies it if it is clearly better, and mutates one of the two sets of
        hyperparameters.
        """
        chosen = candidates(objectives, self.best_lately, self.config)
        self.checks = steps // self.config.interval
        self.best_lately = [-math.inf] * len(self.best_lately)
        if steps < self.config.initial_delay:
            return []
        takeovers, best = [], donors(objectives, self.config)
        for member in chosen:
            if steps - self.left_alone_since[member] >= self.config.wait:
                donor = best[int(self.draw() * len(best))]
                copied = worth_copying(objectives[member], objectives[donor], objectives, self.config)
                source = donor if copied and self.draw() < 0.5 else member
                takeovers.append(self._replaced(steps, member, donor, source, copied, objectives, values))
        return takeovers

    def _replaced(
        self,
        steps: int,
        member: int,
        donor: int,
        source: int,
        copied: bool,
        objectives: Sequence[float],
        values: Sequence[Hyperparameters],
    ) -> Takeover:
        """Mutate the hyperparameters of `source` for the member, and leave it alone from now on."""
        self.left_alone_since[member] = steps
        after = mutate(values[source], self.draw, self.config)
        return Takeover(
            member, donor, copied, source, objectives[member], objectives[donor], dict(values[member]), after
        )

    def state_dict(self) -> State:
        return {
            "generator": self.generator.get_state(),
            "checks": self.checks,
            "best_lately": list(self.best_lately),
            "left_alone_since": list(self.left_alone_since),
        }

    def load_state_dict(self, state: Any) -> None:
        self.generator.set_state(state["generator"].cpu())
        self.checks = state["checks"]
        self.best_lately, self.left_alone_since = list(state["best_lately"]), list(state["left_alone_since"])
