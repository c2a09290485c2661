"""Which recorded episodes the page plays: that of the best run of each method and task, as far as there is room."""

import math

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
    for run in _best_first(contents):
        text = _replay_text(run)
        if text is not None and len(text) <= room and len(found) < MOST:
            found.append(Replay(run.name, text))
            room -= len(text)
    return Player(viewer_script(), found) if found else None


def _best_first(contents: Contents) -> list[Run]:
    """The best run of each method and task that has a replay, the best methods of each task first."""

    def score(run: Run) -> float:
        final = run.final(contents.score)
        return final if math.isfinite(final) else -math.inf

    chosen: list[Run] = []
    for task in contents.tasks:
        groups = [[run for run in method.on(task) if replay_path(run.path).exists()] for method in contents.methods]
        chosen += sorted((max(group, key=score) for group in groups if group), key=score, reverse=True)
    return chosen


def _replay_text(run: Run) -> str | None:
    """The replay as JSON, read and written again so that only a whole one gets into the page."""
    try:
        return replay_json(read_replay(replay_path(run.path)))
    except UserError as error:
        run.notes.append(str(error))
        return None
