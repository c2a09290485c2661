"""Reading `evaluation.json`, which `echelon evaluate` writes."""

import math
from dataclasses import dataclass
from pathlib import Path

from echelon.errors import UserError
from echelon.runs.untrusted import Unreadable, read_json


@dataclass(frozen=True)
class Evaluated:
    """What `echelon evaluate` found at the end of a run: episodes counted once, all policies from the same starts."""

    iteration: int
    """Iterations that its policies were trained for."""
    leader: int
    episodes: int
    """Per policy and way of acting."""
    scores: dict[tuple[int, str], dict[str, float]]
    """By policy and way of acting: `return`, and the task's own figures by name."""

    def of(self, metric: str, policy: int | None = None, mode: str = "deterministic") -> float:
        """A figure of the leader or of another policy; `metric` is its name in training, `NAME/leader`."""
        found = self.scores.get((self.leader if policy is None else policy, mode), {})
        return found.get(metric.removesuffix("/leader"), math.nan)


def read_evaluation(run: Path) -> Evaluated | None:
    """Read `evaluation.json` of a run folder; None if there is none, a `UserError` if it is damaged."""
    path = run / "evaluation.json"
    if not path.exists():
        return None
    try:
        found = read_json(path)
        scores: dict[tuple[int, str], dict[str, float]] = {}
        for one in found["scores"]:
            figures = {"return": one["return_mean"], **one["extra"]}
            known = {name: float(value) for name, value in figures.items() if value is not None}
            scores[int(one["policy"]), str(one["mode"])] = known
        return Evaluated(int(found["iteration"]), int(found["leader"]), int(found["scores"][0]["episodes"]), scores)
    except (Unreadable, ValueError, OverflowError, KeyError, TypeError, IndexError, AttributeError):
        raise UserError("its evaluation.json is damaged; run echelon evaluate again") from None
