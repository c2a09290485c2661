"""`population/genealogy.jsonl`: which member of a population copied which, and its hyperparameters afterwards."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from echelon.runs.folder import RunFolder
from echelon.runs.json_lines import append_lines, drop_lines_after, read_lines


class GenealogyWriter:
    """Appends a line per takeover, after one per member with its initial hyperparameters. Lines after the iteration a
    run resumes from are dropped first."""

    def __init__(self, folder: RunFolder, completed: int = 0) -> None:
        self.path = _path(folder)
        drop_lines_after(self.path, completed)

    def begin(self, hyperparameters: Sequence[Mapping[str, float]]) -> None:
        """Append the initial hyperparameters of all members."""
        lines = [{"member": member, "after": dict(values)} for member, values in enumerate(hyperparameters)]
        self._append(0, 0, lines)

    def write(self, iteration: int, env_steps: int, takeovers: Sequence[Mapping[str, Any]]) -> None:
        """Append the takeovers of one check."""
        self._append(iteration, env_steps, [dict(takeover) for takeover in takeovers])

    def _append(self, iteration: int, env_steps: int, lines: Sequence[dict[str, Any]]) -> None:
        append_lines(self.path, [{"iteration": iteration, "env_steps": env_steps} | line for line in lines])


def read_genealogy(folder: RunFolder) -> list[dict[str, Any]]:
    """All lines of a run."""
    return read_lines(_path(folder))


def _path(folder: RunFolder) -> Path:
    return folder.population / "genealogy.jsonl"
