"""Which recorded episodes the page plays: that of the best run of each method and task, as far as there is room."""

import math
from collections.abc import Callable

from echelon.errors import UserError
from echelon.report.contents import Contents
from echelon.report.page_file import Player, Replay
from echelon.report.reading import Run
from echelon.runs.replays import read_replay, replay_json, replay_path, viewer_script

MOST = 6
"""Replays in one page."""
ROOM = 2_000_000
"""Bytes they may take together."""


def find_player(contents: Contents) -> Player | None:
    """The player with its replays; None where no run has one. A broken replay becomes a note on its run."""
    found: list[Replay] = []
    room = ROOM
    for run in best_runs(contents, lambda run: replay_path(run.path).exists()):
        text = _replay_text(run)
        if text is not None and len(text) <= room and len(found) < MOST:
            found.append(Replay(run.name, text))
            room -= len(text)
    return Player(viewer_script(), found) if found else None


def best_runs(contents: Contents, among: Callable[[Run], bool]) -> list[Run]:
    """The best run of each method and task, of those that count: first the winners of all tasks, then who follows."""

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
    """The replay as JSON, read and written again so that only a whole one gets into the page."""
    try:
        return replay_json(read_replay(replay_path(run.path)))
    except UserError as error:
        run.notes.append(str(error))
        return None
