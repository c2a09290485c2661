"""One self-contained HTML file: styles, scripts and data inlined, nothing loaded from anywhere."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

SCRIPTS = ("core", "statistics", "chart", "selection", "curves", "tables", "maps", "panels", "main")
"""`page/NAME.js`, in the order they depend on each other."""


@dataclass(frozen=True)
class Replay:
    """A recorded episode that can be watched in the page."""

    run: str
    """Name of the run it belongs to."""
    text: str
    """The replay as JSON."""


@dataclass(frozen=True)
class Player:
    """A script that defines `EchelonReplay.mount(element, replay)`, and the replays for it."""

    script: str
    replays: Sequence[Replay]


def page(data: dict[str, Any], player: Player | None, heading: str) -> str:
    """The page as HTML."""
    folder = files("echelon.report") / "page"
    scripts = [(folder / f"{name}.js").read_text() for name in SCRIPTS]
    replays = [f'{{"run":{json.dumps(one.run)},"replay":{one.text}}}' for one in player.replays] if player else []
    parts = {
        "HEADING": _escaped(heading),
        "STYLE": (folder / "style.css").read_text(),
        "DATA": _embedded(json.dumps(data, separators=(",", ":"), allow_nan=False)),
        "REPLAYS": _embedded(f"[{','.join(replays)}]"),
        "PLAYER": _script(player.script) if player and replays else "",
        "SCRIPT": _script("\n".join(scripts)),
    }
    text = (folder / "index.html").read_text()
    head, *rest = text.split("<!--@")
    return head + "".join(parts[name] + tail for name, tail in (piece.split("@-->", 1) for piece in rest))


def _embedded(document: str) -> str:
    """JSON escaped so that it cannot end the script element around it."""
    return document.replace("<", "\\u003c")


def _script(text: str) -> str:
    """JavaScript that cannot end its element: `</` occurs only in strings and comments, where `<\\/` means the same."""
    return text.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")
