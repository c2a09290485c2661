"""`diagnostics/kl.jsonl`: the KL matrix over training, a line per measurement."""

from typing import Any

from echelon.runs.folder import RunFolder
from echelon.runs.json_lines import LineWriter, read_lines

FILE = "diagnostics/kl.jsonl"


class DistanceWriter(LineWriter):
    """Appends matrices."""

    def __init__(self, folder: RunFolder, completed: int = 0) -> None:
        super().__init__(folder, FILE, completed)

    def write(self, iteration: int, env_steps: int, matrix: list[list[float]]) -> None:
        """Append one measurement. `matrix[i][j]` is the mean KL from policy i to policy j on states of policy i; the
        line also holds each policy's nearest."""
        nearest = [min((kl, j) for j, kl in enumerate(row) if j != i)[1] for i, row in enumerate(matrix)]
        self.append([{"iteration": iteration, "env_steps": env_steps, "kl": matrix, "nearest": nearest}])


def read_distances(folder: RunFolder) -> list[dict[str, Any]]:
    """All measurements of a run."""
    return read_lines(folder.path / FILE)
