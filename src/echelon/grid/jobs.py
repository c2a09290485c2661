"""The jobs of a grid. What is done is read from the disk: the run folders are the only state."""

import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from echelon.config import TrainConfig, to_dict
from echelon.errors import UserError
from echelon.runs.evaluations import read_evaluation
from echelon.runs.folder import PRUNED
from echelon.tasks import stored_config


@dataclass(frozen=True)
class Job:
    """One run of a grid."""

    name: str
    """Unique in the grid; names its files in the folder of logs."""
    config: TrainConfig
    """Complete, with `out` set."""
    evaluate: bool = False
    """Whether `echelon evaluate` follows the training."""

    @property
    def path(self) -> Path:
        """The run folder."""
        assert self.config.out, f"the job {self.name} has no run folder: set config.out"
        return Path(self.config.out)

    @property
    def saved(self) -> int:
        """The last iteration whose state is saved; 0 if none is."""
        names = (path.name for path in self.path.glob("checkpoints/*"))
        return max((int(name) for name in names if name.isdigit()), default=0)

    @property
    def trained(self) -> bool:
        """Whether the state after the last iteration is saved."""
        return self.saved >= self.config.num_iterations

    @property
    def pruned(self) -> str:
        """Why a sweep stopped it early; empty if none did."""
        try:
            return (self.path / PRUNED).read_text()
        except OSError:
            return ""

    @property
    def done(self) -> bool:
        """Whether there is nothing left to do."""
        return bool(self.pruned) or (self.trained and not (self.evaluate and math.isnan(self.score())))

    def score(self, metric: str = "return") -> float:
        """The leader's evaluated return at the end of training; NaN if `evaluation.json` does not have it."""
        try:
            found = read_evaluation(self.path)
        except UserError:
            return math.nan
        return found.of(metric) if found and found.iteration >= self.config.num_iterations else math.nan

    def newest(self) -> dict[str, Any]:
        """The last whole line of its metrics, empty before there is one."""
        try:
            with (self.path / "metrics.jsonl").open("rb") as file:
                file.seek(max(0, file.seek(0, 2) - (1 << 16)))  # which surely hold a line
                whole, _, _ = file.read().rpartition(b"\n")
            return json.loads(whole.rpartition(b"\n")[2])
        except (OSError, ValueError):
            return {}

    def log(self, state: Path) -> Path:
        """What its processes print. `state` is a grid's folder in that of the logs."""
        return state.parent / f"{self.name}.log"

    def to_json(self) -> str:
        """One line that its processes read, with the command that its run folder will name."""
        return json.dumps([self.name, to_dict(self.config), self.evaluate, sys.argv])

    @classmethod
    def from_json(cls, text: str) -> "Job":
        """Read such a line, and take over its command."""
        name, config, evaluate, sys.argv = json.loads(text)
        return cls(name, stored_config(config), evaluate)
