"""`population/genealogy.jsonl`: which member of a population copied which, and its hyperparameters afterwards."""

from collections.abc import Mapping, Sequence
from typing import Any

from echelon.runs.folder import RunFolder
from echelon.runs.json_lines import LineWriter

FILE = "population/genealogy.jsonl"


class GenealogyWriter(LineWriter):
    """Appends a line per takeover, after one per member with its initial hyperparameters."""

    def __init__(self, folder: RunFolder, completed: int = 0) -> None:
        super().__init__(folder, FILE, completed)

    def begin(self, hyperparameters: Sequence[Mapping[str, float]]) -> None:
        """Append the initial hyperparameters of all members."""
        self.write(0, 0, [{"member": member, "after": values} for member, values in enumerate(hyperparameters)])

    def write(self, iteration: int, env_steps: int, takeovers: Sequence[Mapping[str, Any]]) -> None:
        """Append the takeovers of one check."""
        self.append([{"iteration": iteration, "env_steps": env_steps} | dict(takeover) for takeover in takeovers])
