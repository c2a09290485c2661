"""Reading `evaluation.json`, which `echelon evaluate` writes."""

import math
from dataclasses import dataclass

from echelon.errors import UserError
from echelon.runs.folder import RunFolder
from echelon.runs.untrusted import Unreadable, read_json


@dataclass(frozen=True)
class Evaluated:
    """What `echelon evaluate` found at the end of a run: episodes counted once, all policies from the same starts."""

    leader: int
    episodes: int
    """Per policy and way of acting."""
    scores: dict[tuple[int, str], dict[str, float]]
    """By policy and way of acting: `return`, and the task's own figures by name."""

    def of(self, metric: str, policy: int | None = None, mode: str = "deterministic") -> float:
        """A figure of the leader or of another policy; `metric` is its name in training, `NAME/leader`."""
        found = self.scores.get((self.leader if policy is None else policy, mode), {})
        return found.get(metric.removesuffix("/leader"), math.nan)


def read_evaluation(folder: RunFolder, iteration: int) -> Evaluated | None:
    """What `evaluation.json` says of the state after `iteration`; None if it is of another. A `UserError` if it is
    damaged."""
    if not folder.evaluation.exists():
        return None
    try:
        found = read_json(folder.evaluation)
        scores: dict[tuple[int, str], dict[str, float]] = {}
        for one in found["scores"]:
            figures = {"return": one["return_mean"], **one["extra"]}
            known = {name: float(value) for name, value in figures.items() if value is not None}
            scores[int(one["policy"]), str(one["mode"])] = known
        evaluated = Evaluated(int(found["leader"]), int(found["scores"][0]["episodes"]), scores)
        return evaluated if found["iteration"] == iteration else None
    except (Unreadable, ValueError, KeyError, TypeError, IndexError, AttributeError):
        raise UserError("its evaluation.json is damaged; run echelon evaluate again") from None
