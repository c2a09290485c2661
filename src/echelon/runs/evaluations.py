"""Scores of a run's policies: `evaluation.json`, and `robustness.json` for scores in changed physics."""

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from echelon.errors import UserError
from echelon.runs.durable import replace_durably
from echelon.runs.metrics import jsonable
from echelon.runs.untrusted import Unreadable, from_json, read_json

T = TypeVar("T")


@dataclass(frozen=True)
class PolicyScore:
    """One policy, acting one way, over one episode in each of its environments."""

    policy: int
    mode: str
    """deterministic or sampled."""
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
    """Scores of all policies of a run."""

    task: str
    algo: str
    iteration: int
    """Iterations that its policies were trained for."""
    env_steps: int
    seed: int
    scores: tuple[PolicyScore, ...]
    leader: int = 0
    """The policy that stands for the run: in a population, the one that trained best."""

    def __post_init__(self) -> None:
        if not self.scores:
            raise ValueError("an evaluation has scores")

    def of(self, metric: str, policy: int | None = None, mode: str = "deterministic") -> float:
        """A figure of the leader or of another policy; `metric` is its name in training, `NAME/leader`."""
        who, name = (self.leader if policy is None else policy, mode), metric.removesuffix("/leader")
        found = ({"return": one.return_mean} | one.extra for one in self.scores if (one.policy, one.mode) == who)
        return next(found, {}).get(name, math.nan)


@dataclass(frozen=True)
class Axis:
    """Scores while one parameter of the physics changes."""

    values: tuple[float, ...]
    scores: tuple[tuple[float, ...], ...]
    """By policy, at each value."""


@dataclass(frozen=True)
class Robustness:
    """Scores of all policies of a run as its physics changes, one parameter at a time."""

    iteration: int
    leader: int
    episodes: int
    """Per value and policy."""
    score: str
    """What is scored: the return, or the task's objective."""
    plain: tuple[float, ...]
    """Scores by policy in plain physics."""
    parameters: dict[str, Axis]

    def __post_init__(self) -> None:
        policies = len(self.plain)
        whole = (a.values and [*map(len, a.scores)] == [len(a.values)] * policies for a in self.parameters.values())
        if not self.parameters or not all(whole) or not 0 <= self.leader < policies:
            raise ValueError("every policy has a score at every value of a parameter")

    def mean(self, policy: int) -> float:
        """A policy's score over all values of all parameters."""
        found = [score for axis in self.parameters.values() for score in axis.scores[policy]]
        return sum(found) / len(found)

    @property
    def best(self) -> int:
        """The policy that scores highest in changed physics; the leader if it is one of several."""

        def rank(policy: int) -> tuple[float, bool]:
            mean = self.mean(policy)
            return -math.inf if math.isnan(mean) else mean, policy == self.leader

        return max(range(len(self.plain)), key=rank)


def write_evaluation(evaluation: Evaluation | Robustness, path: Path) -> None:
    """Write the evaluation as JSON; figures that are not finite become null."""
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_durably(path, json.dumps(jsonable(evaluation), indent=2, allow_nan=False).encode())


def read_evaluation(run: Path) -> Evaluation | None:
    """Read `evaluation.json` of a run folder; None if there is none, a `UserError` if it is damaged."""
    return _read(run / "evaluation.json", Evaluation, "evaluate")


def read_robustness(run: Path) -> Robustness | None:
    """Read `robustness.json` of a run folder; None if there is none, a `UserError` if it is damaged."""
    return _read(run / "robustness.json", Robustness, "evaluate --robustness")


def _read(path: Path, kind: type[T], again: str) -> T | None:
    if not path.exists():
        return None
    try:
        return from_json(read_json(path), kind, null_is_nan=True)
    except (Unreadable, UserError, ValueError, OverflowError, KeyError, TypeError):
        raise UserError(f"its {path.name} is damaged; run echelon {again} again") from None
