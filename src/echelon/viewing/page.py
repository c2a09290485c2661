"""A replay as one self-contained HTML page."""

import html
from pathlib import Path

from echelon.runs.durable import replace_durably
from echelon.runs.replays import Replay, embedded, replay_json, viewer_script

_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
  html, body {{ height: 100%; margin: 0; }}
  #replay {{ height: 100%; }}
</style>
</head>
<body>
<div id="replay"></div>
<script>{script}</script>
<script>
  const replay = {replay};
  window.handle = EchelonReplay.mount(document.getElementById("replay"), replay);
</script>
</body>
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
