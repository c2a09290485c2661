"""`echelon evaluate`: score every policy of a run."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from echelon.commands.command import OnRun
from echelon.config.ranges import COUNT, NOT_NEGATIVE


@dataclass(frozen=True)
class Evaluate(OnRun):
    """Score every policy of a run."""

    num_envs: Annotated[int, COUNT] = 64
    """Environments per policy; each counts one episode."""
    seed: Annotated[int, NOT_NEGATIVE] = 1000
    """Seed of the episodes; other than in training, so that they are new ones."""
    json: str | None = None
    """Where to write the scores; evaluation.json in the run folder unless given."""
    checkpoint: Literal["newest", "best"] = "newest"
    """Which checkpoint to score."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to simulate; auto is CUDA if there is a GPU."""

    def run(self) -> int:
        from rich.console import Console

        from echelon.config.checks import choose_device
        from echelon.console.wording import LOG_WIDTH
        from echelon.runs.durable import require_writable, writing

        folder = self.folder()
        choose_device(self.device)
        target = folder.evaluation if self.json is None else Path(self.json)
        require_writable(target)

        from echelon.evaluation.evaluate import evaluate, headline, score_table
        from echelon.runs.evaluations import write_evaluation

        evaluation = evaluate(folder, self.num_envs, self.seed, self.device, self.checkpoint)
        print(headline(evaluation))
        Console(width=None if sys.stdout.isatty() else LOG_WIDTH).print(score_table(evaluation))
        with writing(target, "choose another --json"):
            write_evaluation(evaluation, target)
        print(f"Written to {target}")
        return 0
