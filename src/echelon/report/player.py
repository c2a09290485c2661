"""Which recorded episodes the page plays: those of the best run of each method and task, up to a total size."""

import math
from collections.abc import Callable

from echelon.errors import UserError
from echelon.report.contents import Contents
from echelon.report.page_file import Player, Replay
from echelon.report.reading import Run
from echelon.runs.replays import read_replay, replay_json, replay_path, viewer_script

MAX_REPLAYS = 6
"""Largest number of replays in one page."""
MAX_REPLAY_BYTES = 2_000_000
"""Largest total size of the replays in one page."""


def find_player(contents: Contents) -> Player | None:
    """The player with its replays; None if no run has one. A damaged replay becomes a note on its run."""
    found: list[Replay] = []
    bytes_left = MAX_REPLAY_BYTES
    for run in best_runs(contents, lambda run: replay_path(run.path).exists()):
        text = _replay_text(run)
        if text is not None and len(text) <= bytes_left and len(found) < MAX_REPLAYS:
            found.append(Replay(run.name, text))
            bytes_left -= len(text)
    return Player(viewer_script(), found) if found else None


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


def _replay_text(run: Run) -> str | None:
    """The replay as JSON; it is parsed first, so that a damaged one never gets into the page."""
    try:
        return replay_json(read_replay(replay_path(run.path)))
    except UserError as error:
        run.notes.append(str(error))
        return None
