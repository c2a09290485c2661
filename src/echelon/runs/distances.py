"""`diagnostics/kl.jsonl`: the KL matrix over training, a line per measurement."""

import json
from pathlib import Path
from typing import Any

from echelon.runs.durable import replace_durably
from echelon.runs.folder import RunFolder


class DistanceWriter:
    """Appends matrices; lines after the iteration a run resumes from are dropped first."""

    def __init__(self, folder: RunFolder, completed: int = 0) -> None:
        self.path = folder.diagnostics / "kl.jsonl"
        kept = [line for line in read_distances(folder) if line["iteration"] <= completed]
        if self.path.exists():
            replace_durably(self.path, "".join(json.dumps(line) + "\n" for line in kept).encode())

    def write(self, iteration: int, env_steps: int, matrix: list[list[float]]) -> None:
        """One measurement. `matrix[i][j]` is the mean KL from policy i to policy j on states of policy i; the line
        also names the policy nearest to each."""
        self.path.parent.mkdir(exist_ok=True)
        nearest = [min((kl, j) for j, kl in enumerate(row) if j != i)[1] for i, row in enumerate(matrix)]
        line = {"iteration": iteration, "env_steps": env_steps, "kl": matrix, "nearest": nearest}
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")


def read_distances(folder: RunFolder) -> list[dict[str, Any]]:
    """All measurements of a run; a line that a kill cut short is left out."""
    path = Path(folder.diagnostics / "kl.jsonl")
    if not path.exists():
        return []
    lines = []
    for text in path.read_text().splitlines():
        try:
            lines.append(json.loads(text))
        except ValueError:
            continue
    return lines
