"""A replay that shows itself where it is the last line of a notebook's cell: `echelon.replay("runs/hopper-3")`."""

import html
from dataclasses import dataclass
from pathlib import Path

from echelon.envs.contract import MakeEnv
from echelon.runs.checkpoint import Which
from echelon.runs.folder import RunFolder
from echelon.runs.replays import Replay
from echelon.viewing.page import replay_page, write_page
from echelon.viewing.recorder import SEED, record_replay

HEIGHT = 520
"""Pixels of a cell's output."""


@dataclass(frozen=True)
class Shown:
    """Recorded episodes, in 3D in a notebook; `save` writes them as a page."""

    replay: Replay

    def _repr_html_(self) -> str:
        """In a frame of its own, so that neither page can spoil the other."""
        page = html.escape(replay_page(self.replay), quote=True)
        return f'<iframe srcdoc="{page}" style="width: 100%; height: {HEIGHT}px; border: 0" allowfullscreen></iframe>'

    def __repr__(self) -> str:
        returns = ", ".join(f"{episode.name} {episode.total_return:.1f}" for episode in self.replay.episodes)
        return f"replay of {self.replay.run} after iteration {self.replay.iteration:,}: {returns}"

    def save(self, path: str | Path) -> None:
        """Write a self-contained HTML page."""
        write_page(self.replay, Path(path))


def replay(
    run: RunFolder | str | Path,
    policies: str = "all",
    seed: int = SEED,
    checkpoint: Which = "newest",
    make_env: MakeEnv | None = None,
) -> Shown:
    """An episode of `all` of a run's policies, of the `leader` or of one by its number; also kept in its folder."""
    folder = run if isinstance(run, RunFolder) else RunFolder.open(run)
    return Shown(record_replay(folder, policies, seed, checkpoint, make_env))
