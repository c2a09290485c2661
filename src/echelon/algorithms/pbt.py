"""DexPBT: members trained by PPO; at intervals the worst copy the best and try other hyperparameters.

Petrenko et al. 2023, section III: the rules as pure functions, `Evolution`, which applies them over a run, and
`Population`, which writes what it decides. Every member has a network of its own, and each setting of the update that
may mutate is a vector over members. All have taken the same number of environment steps, so a check looks at all of
them at once. An objective that is not known yet is NaN: such a member ranks behind all others, is never a donor, and is
not replaced. A member whose network is not finite has the objective `BROKEN`, the worst there is: it is replaced at
once, whatever the rules say.
"""

import math
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from echelon.algorithms import Mutable, PbtConfig, PbtTrainConfig
from echelon.algorithms.algorithm import Algorithm, Parts, Takeover
from echelon.algorithms.ppo import actor_loss
from echelon.envs.contract import State
from echelon.errors import UserError
from echelon.learning.optimizer import HIGHEST, LOWEST
from echelon.rollout.layout import Layout

BROKEN = -math.inf
"""Objective of a member whose weights, statistics or moments are not finite."""
SCALE = "env."
"""Prefix of the name of a task's reward scale."""
Draw = Callable[[], float]
"""A random number, uniform in [0, 1)."""
Hyperparameters = Mapping[str, float]
"""A member's hyperparameters by name."""


def ranked(objectives: Sequence[float]) -> list[int]:
    """Members from the best to the worst; unknown ones behind the known, broken ones last, equal ones by index."""

    def place(i: int) -> tuple[int, float]:
        objective = objectives[i]
        return (0, -objective) if math.isfinite(objective) else (1 + (objective == BROKEN), 0.0)

    return sorted(range(len(objectives)), key=place)


def group_size(fraction: float, members: int) -> int:
    """`fraction` of the members, rounded up."""
    return min(members, math.ceil(fraction * members - 1e-9))  # tolerate rounding


def donors(objectives: Sequence[float], config: PbtConfig) -> list[int]:
    """The best members, whose objectives are known."""
    best = ranked(objectives)[: group_size(config.best_fraction, len(objectives))]
    return [i for i in best if math.isfinite(objectives[i])]


def candidates(objectives: Sequence[float], best_lately: Sequence[float], config: PbtConfig) -> list[int]:
    """Members to be replaced: among the worst now, and worse than every donor at all times since the last check.

    `best_lately` is each member's highest objective since then. No member is replaced before more than half of the
    members, and more than two if there are more, have an objective.
    """
    members = len(objectives)
    known = sum(map(math.isfinite, objectives))
    if known < min(members, max(2, members // 2) + 1):
        return []
    floor = min(objectives[i] for i in donors(objectives, config))
    worst = ranked(objectives)[members - group_size(config.worst_fraction, members) :]
    return sorted(i for i in worst if best_lately[i] < floor and math.isfinite(objectives[i]))


def deviation(objectives: Sequence[float]) -> float:
    """Standard deviation of the known objectives without the lowest fifth: collapsed members would inflate it."""
    known = sorted(filter(math.isfinite, objectives))
    kept = known[int(0.2 * len(known) + 1e-9) :]
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


def vectors(config: PbtTrainConfig, layout: Layout) -> dict[str, Tensor]:
    """Hyperparameters of the update that may mutate, `[M]` each; the learning rate is a vector of the optimizer."""
    names = [name for name in typing.get_args(Mutable) if name not in ("learning_rate", "reward_scale")]
    return {name: _vector(getattr(config.update, name), layout) for name in names}


def _vector(value: float, layout: Layout) -> Tensor:
    return torch.full((layout.policies,), float(value), dtype=torch.float64, device=layout.device)


class Population:
    """Replaces members between iterations.

    CUDA graphs keep their shapes: takeovers write into the stacked tensors, after the update. The environments of a
    member that copies other weights keep their states; its memory is cleared, its current episodes are not scored, and
    until new ones end it has the scores of the member it copied.
    """

    def __init__(self, parts: Parts[PbtTrainConfig]) -> None:
        self.parts, self.leader = parts, 0
        env, layout = parts.env, parts.layout
        self.objective = getattr(env, "objective", "return")
        self._scales: dict[str, Tensor] = {SCALE + name: x for name, x in getattr(env, "reward_scales", {}).items()}
        if "reward_scale" in parts.config.pbt.mutable:
            scale = torch.full((layout.num_envs,), parts.config.update.reward_scale, device=layout.device)
            self._scales["reward_scale"] = parts.collector.reward_scale = scale
        self.vectors = {"learning_rate": parts.update.optimizer.rate} | parts.settings.vectors
        self.vectors |= {name: _vector(float(x.flatten()[0]), layout) for name, x in self._scales.items()}
        self.evolution = Evolution(layout.policies, parts.config.pbt, parts.config.seed)
        if parts.config.pbt.mutate_at_start:
            self.write(self.evolution.start(self.start()))

    def metrics(self) -> dict[str, Tensor]:
        """Scores of all members; the leader is the one with the highest objective."""
        episodes = self.parts.collector.episodes
        if self.objective not in episodes.names:
            raise UserError(f"{self.objective} is the task's objective, but it reports no episode/{self.objective}")
        objective = episodes.objective(self.objective)
        objective = torch.where(objective.isfinite(), objective, torch.nan)
        objective = torch.where(self.parts.update.finite(), objective, BROKEN)
        lowest = torch.finfo(objective.dtype).min
        best = objective.nan_to_num(nan=lowest, neginf=-math.inf).argmax(dim=0, keepdim=True)
        by_policy = {"objective": objective} | {f"pbt/{name}": x for name, x in self.vectors.items()}
        each = {f"{name}/policy_{i}": x[i] for name, x in by_policy.items() for i in range(len(objective))}
        leading = {"pbt/best": best[0], "lr": self.parts.update.optimizer.rate.index_select(0, best)[0]}
        return episodes.metrics(best) | each | leading

    def after(self, iteration: int, metrics: Mapping[str, float]) -> Sequence[Takeover]:
        """Replace members that are not finite; check the others if an interval has passed."""
        layout = self.parts.layout
        objectives = [metrics[f"objective/policy_{i}"] for i in range(layout.policies)]
        self.leader = ranked(objectives)[0]
        steps = iteration * self.parts.config.update.horizon * layout.envs * layout.ranks.size
        takeovers = self.evolution.replace_broken(steps, objectives, self.start()) if BROKEN in objectives else []
        for takeover in takeovers:
            self.apply(takeover)
            objectives[takeover.member] = math.nan  # a copy has no objective of its own yet
        self.evolution.observe(objectives)
        if not self.evolution.due(steps):
            return takeovers
        checked = self.evolution.check(steps, objectives, self.start())
        for takeover in checked:
            self.apply(takeover)
        return [*takeovers, *checked]

    def score(self, metrics: Mapping[str, float]) -> float:
        """The best member's objective. Not its return, whose scale may mutate."""
        return metrics[f"objective/policy_{self.leader}"]

    def start(self) -> list[dict[str, float]]:
        """Hyperparameters of every member, read from the device in one transfer."""
        mutable = self.parts.config.pbt.mutable
        names = [name for name in self.vectors if name in mutable or name.startswith(SCALE)]
        if not names:
            return [{} for _ in range(self.parts.layout.policies)]
        rows = torch.stack([self.vectors[name].double() for name in names], dim=1).tolist()
        return [dict(zip(names, row, strict=True)) for row in rows]

    def apply(self, takeover: Takeover) -> None:
        """Copy weights, if the takeover does, and set the hyperparameters; all in place."""
        if takeover.copied:
            self.parts.update.copy(takeover.donor, takeover.member)
            self.parts.collector.inherit(takeover.donor, takeover.member)
        self.write([takeover.after if i == takeover.member else {} for i in range(self.parts.layout.policies)])

    def write(self, rows: Sequence[Mapping[str, float]]) -> None:
        """Set every member's hyperparameters; those not named keep their values."""
        for member, values in enumerate(rows):
            for name, value in values.items():
                self.vectors[name][member].fill_(value)
        self._fit()

    def _fit(self) -> None:
        """Pass reward scales to the environments and the collector, and take the most passes that any member needs."""
        for name, scale in self._scales.items():
            scale.copy_(self.vectors[name].index_select(0, self.parts.layout.policy_id))
        self.parts.update.passes = int(self.vectors["mini_epochs"].max())

    def state_dict(self) -> State:
        hyperparameters = {name: x.clone() for name, x in self.vectors.items()}
        return {"hyperparameters": hyperparameters, "evolution": self.evolution.state_dict()}

    def load_state_dict(self, state: Any) -> None:
        for name, x in state["hyperparameters"].items():
            self.vectors[name].copy_(x)
        self.evolution.load_state_dict(state["evolution"])
        self._fit()


PBT = Algorithm(
    "pbt",
    actor_loss,
    settings=PbtTrainConfig,
    networks=lambda policies: policies,
    vectors=vectors,
    selection=Population,
    colour=3,
)
"""Each member's loss is PPO's."""
