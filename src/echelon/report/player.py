"""Which recorded episodes the page plays: those of the best run of each method and task, up to a total size."""

import math
from collections.abc import Callable

from echelon.errors import UserError
from echelon.report.contents import Contents
from echelon.report.reading import Run
from echelon.runs.replays import read_replay, replay_json, replay_path

MAX_REPLAYS = 6
"""Largest number of replays in one page."""
MAX_REPLAY_BYTES = 2_000_000
"""Largest total size of the replays in one page."""


def find_replays(contents: Contents) -> dict[str, str]:
    """Recorded episodes as JSON, by the names of their runs. A damaged one becomes a note on its run: all are parsed
    first, so that none gets into the page."""
    found: dict[str, str] = {}
    for run in best_runs(contents, lambda run: replay_path(run.path).exists()):
        try:
            text = replay_json(read_replay(replay_path(run.path)))
        except UserError as error:
            run.notes.append(str(error))
            continue
        if len(found) < MAX_REPLAYS and sum(map(len, found.values())) + len(text) <= MAX_REPLAY_BYTES:
            found[run.name] = text
    return found


def best_runs(contents: Contents, among: Callable[[Run], bool]) -> list[Run]:
    """The best run of each method and task that passes `among`; first the best of each task, then the second."""

    def score(run: Run) -> float:
        final = run.final(contents.score)
        return final if math.isfinite(final) else -math.inf

    ranked: list[tuple[int, Run]] = []
    for task in contents.tasks:
        groups = [[run for run in method.on(task) if among(run)] for method in contents.methods]
        best = sorted((max(group, key=score) for group in groups if group), key=score, reverse=True)
        ranked += enumerate(best)
    return [run for _, run in sorted(ranked, key=lambda item: item[0])]
