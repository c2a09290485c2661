"""Scores of a run's policies: `evaluation.json`, and `robustness.json` for scores in changed physics."""

import dataclasses
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from echelon.errors import UserError
from echelon.runs.durable import replace_durably
from echelon.runs.metrics import jsonable
from echelon.runs.untrusted import Unreadable, read_json

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


def read_robustness(run: Path) -> Robustness | None:
    """Read `robustness.json` of a run folder; None if there is none, a `UserError` if it is damaged."""
    return _read(run / "robustness.json", _robustness, "evaluate --robustness")


def write_evaluation(evaluation: Evaluation | Robustness, path: Path) -> None:
    """Write the evaluation as JSON; figures that are not finite become null."""
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_durably(path, json.dumps(jsonable(dataclasses.asdict(evaluation)), indent=2, allow_nan=False).encode())


def read_evaluation(run: Path) -> Evaluation | None:
    """Read `evaluation.json` of a run folder; None if there is none, a `UserError` if it is damaged."""
    return _read(run / "evaluation.json", _evaluation, "evaluate")


def _read(path: Path, parse: Callable[[Any], T], again: str) -> T | None:
    if not path.exists():
        return None
    try:
        return parse(read_json(path))
    except (Unreadable, ValueError, OverflowError, KeyError, TypeError, AttributeError):
        raise UserError(f"its {path.name} is damaged; run echelon {again} again") from None


def _robustness(found: dict[str, Any]) -> Robustness:
    axes = {
        str(name): Axis(tuple(map(float, one["values"])), tuple(tuple(map(_number, row)) for row in one["scores"]))
        for name, one in found["parameters"].items()
    }
    plain = tuple(map(_number, found["plain"]))
    iteration, leader, episodes = (int(found[name]) for name in ("iteration", "leader", "episodes"))
    whole = all(one.values and len(one.scores) == len(plain) for one in axes.values()) and 0 <= leader < len(plain)
    if not axes or not whole or any(len(row) != len(one.values) for one in axes.values() for row in one.scores):
        raise ValueError
    return Robustness(iteration, leader, episodes, str(found["score"]), plain, axes)


def _evaluation(found: dict[str, Any]) -> Evaluation:
    numbers = {name: int(found[name]) for name in ("iteration", "env_steps", "seed", "leader")}
    scores = tuple(map(_score, found["scores"]))
    if not scores:
        raise ValueError
    return Evaluation(str(found["task"]), str(found["algo"]), scores=scores, **numbers)


def _score(found: dict[str, Any]) -> PolicyScore:
    figures = {name: _number(found[name]) for name in ("return_mean", "return_std", "length_mean", "terminated")}
    extra = {name: _number(value) for name, value in found["extra"].items()}
    return PolicyScore(int(found["policy"]), str(found["mode"]), int(found["episodes"]), extra=extra, **figures)


def _number(value: Any) -> float:
    """A number as it was written, NaN for null."""
    return math.nan if value is None else float(value)
