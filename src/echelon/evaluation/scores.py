"""An evaluation as a table for people and as JSON for programs."""

import dataclasses
import json
import math
from pathlib import Path

from rich.table import Table

from echelon.console.wording import count, figure
from echelon.evaluation.evaluate import Evaluation, PolicyScore
from echelon.runs.durable import replace_durably
from echelon.runs.metrics import jsonable


def score_table(evaluation: Evaluation) -> Table:
    """A row per policy and way of acting; the leader is bold."""
    extras = list(dict.fromkeys(name for score in evaluation.scores for name in score.extra))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="cyan")
    table.add_column("policy", no_wrap=True)
    table.add_column("actions", no_wrap=True)
    table.add_column("return", justify="right", no_wrap=True)
    for heading in ("length", "ended early", *(name.replace("_", " ") for name in extras)):
        table.add_column(heading, justify="right")
    for score in evaluation.scores:
        leads = score.policy == evaluation.leader
        table.add_row(*_row(score, extras, leads), style="bold" if leads else None)
    return table


def headline(evaluation: Evaluation) -> str:
    """Task, algorithm and length of training in one line."""
    return (
        f"{evaluation.task}, {evaluation.algo}, after {evaluation.iteration:,} iterations "
        f"({count(evaluation.env_steps)} steps), {evaluation.scores[0].episodes} episodes each"
    )


def write_scores(evaluation: Evaluation, path: Path) -> None:
    """Write the evaluation as JSON; figures that are not finite become null."""
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_durably(path, json.dumps(jsonable(dataclasses.asdict(evaluation)), indent=2, allow_nan=False).encode())


def _row(score: PolicyScore, extras: list[str], leads: bool) -> list[str]:
    """The cells of one score."""
    return [
        f"{score.policy} leader" if leads else str(score.policy),
        score.mode,
        f"{figure(score.return_mean)} ± {figure(score.return_std)}",
        figure(score.length_mean),
        f"{score.terminated:.0%}" if math.isfinite(score.terminated) else "-",
        *(figure(score.extra.get(name, math.nan)) for name in extras),
    ]
