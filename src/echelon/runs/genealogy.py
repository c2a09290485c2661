"""`population/genealogy.jsonl`: who copied whom in a population, and what became of its hyperparameters."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from echelon.algorithms.pbt import Takeover
from echelon.runs.durable import replace_durably
from echelon.runs.folder import RunFolder


class GenealogyWriter:
    """Appends a line per takeover, after one per member for what it began with. Lines after the iteration a run resumes
    from are dropped first."""

    def __init__(self, folder: RunFolder, completed: int = 0) -> None:
        self.path = folder.population / "genealogy.jsonl"
        kept = [line for line in read_genealogy(folder) if line["iteration"] <= completed] if completed else []
        if self.path.exists():
            replace_durably(self.path, "".join(json.dumps(line) + "\n" for line in kept).encode())

    def begin(self, hyperparameters: Sequence[Mapping[str, float]]) -> None:
        """What the members start with."""
        lines = [{"member": member, "after": dict(values)} for member, values in enumerate(hyperparameters)]
        self._append(0, 0, lines)

    def write(self, iteration: int, env_steps: int, takeovers: Sequence[Takeover]) -> None:
        """The takeovers of one check."""
        self._append(iteration, env_steps, [dataclasses.asdict(takeover) for takeover in takeovers])

    def _append(self, iteration: int, env_steps: int, lines: Sequence[dict[str, Any]]) -> None:
        self.path.parent.mkdir(exist_ok=True)
        with self.path.open("a") as file:
            for line in lines:
                file.write(json.dumps({"iteration": iteration, "env_steps": env_steps} | line) + "\n")


def read_genealogy(folder: RunFolder) -> list[dict[str, Any]]:
    """All lines of a run; one that a kill cut short is left out."""
    path = folder.population / "genealogy.jsonl"
    if not path.exists():
        return []
    lines = []
    for text in path.read_text().splitlines():
        try:
            lines.append(json.loads(text))
        except ValueError:
            continue
    return lines
