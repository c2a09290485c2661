"""`echelon evaluate`: score every policy of a run."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from echelon.config.ranges import COUNT, NOT_NEGATIVE, require


@dataclass(frozen=True)
class EvaluateFlags:
    """Flags of `echelon evaluate`."""

    num_envs: int = 64
    """Environments per policy; each counts one episode."""
    seed: int = 1000
    """Decides the episodes. Not the training seed, so that they are new ones."""
    json: str | None = None
    """Where to write the scores; evaluation.json in the run folder unless given."""
    checkpoint: Literal["newest", "best"] = "newest"
    """Which checkpoint to score."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to simulate; auto takes CUDA where there is one."""


def run(arguments: list[str]) -> int:
    """Score every policy of a run."""
    from echelon.console.flags import parse_after_run

    run, given = parse_after_run(EvaluateFlags(), arguments, "evaluate", "Score every policy of a run.")
    require("num_envs", given.num_envs, COUNT)
    require("seed", given.seed, NOT_NEGATIVE)

    from rich.console import Console

    from echelon.config.checks import require_device
    from echelon.console.tables import LOG_WIDTH
    from echelon.runs.durable import require_writable, writing
    from echelon.runs.folder import RunFolder

    folder = RunFolder.open(run)
    require_device(given.device)
    target = folder.evaluation if given.json is None else Path(given.json)
    require_writable(target)

    from echelon.evaluation.evaluate import evaluate
    from echelon.evaluation.scores import headline, score_table, write_scores

    evaluation = evaluate(folder, given.num_envs, given.seed, given.device, given.checkpoint)
    print(headline(evaluation))
    Console(width=None if sys.stdout.isatty() else LOG_WIDTH).print(score_table(evaluation))
    with writing(target, "choose another --json"):
        write_scores(evaluation, target)
    print(f"Written to {target}")
    return 0
