"""A replay as one self-contained HTML page, or in a notebook's cell: `echelon.replay("runs/hopper-3")`."""

import html
from dataclasses import dataclass
from pathlib import Path

from echelon.envs.contract import MakeEnv
from echelon.runs.checkpoint import Which, is_newest
from echelon.runs.durable import replace_durably
from echelon.runs.folder import RunFolder
from echelon.runs.replays import Replay, embedded, replay_json, replay_path, viewer_script, write_replay
from echelon.runs.trained import Trained
from echelon.viewing.recorder import SEED, record, to_replay

_PAGE = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>html, body, #replay {{ height: 100%; margin: 0; }}</style>
<div id="replay"></div>
<script>{script}</script>
<script>
  const replay = {replay};
  window.handle = EchelonReplay.mount(document.getElementById("replay"), replay);
</script>
</html>
"""


def replay_page(replay: Replay) -> str:
    """The page as HTML."""
    title = html.escape(f"{replay.task}, {replay.algo}, iteration {replay.iteration:,}: {replay.run}")
    return _PAGE.format(title=title, script=viewer_script(), replay=embedded(replay_json(replay)))


def write_page(replay: Replay, path: Path) -> None:
    """Write the page, replacing an older one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_durably(path, replay_page(replay).encode())


@dataclass(frozen=True)
class NotebookReplay:
    """Recorded episodes, in 3D in a notebook."""

    replay: Replay

    def _repr_html_(self) -> str:
        """A frame, so that neither page can spoil the other."""
        page = html.escape(replay_page(self.replay), quote=True)
        return f'<iframe srcdoc="{page}" style="width: 100%; height: 520px; border: 0" allowfullscreen></iframe>'

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
) -> NotebookReplay:
    """Record an episode of `leader`, `all` or a policy's number; that of the newest checkpoint is also written into the
    run folder, for reports."""
    trained = Trained.load(run, checkpoint, make_env)
    found = to_replay(trained, seed, record(trained, policies, seed))
    if is_newest(trained.folder, checkpoint, trained.iteration):
        write_replay(found, replay_path(trained.folder.path))
    return NotebookReplay(found)
