"""One self-contained HTML file: styles, scripts and data inlined, nothing loaded from anywhere."""

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from echelon.report.palette import COLOURS, DARK_COLOURS
from echelon.runs.replays import embedded, viewer_script

SCRIPTS = (
    *("core", "state", "statistics", "export", "chart", "selection", "compared"),
    *("curves", "tables", "comparison", "maps", "policies", "listings", "main"),
)
"""`page/NAME.js`, in the order they depend on each other."""


def page(data: dict[str, Any], replays: Mapping[str, str], heading: str) -> str:
    """The page as HTML. `replays` are recorded episodes as JSON, by the names of their runs."""
    folder = files("echelon.report") / "page"
    scripts = [(folder / f"{name}.js").read_text() for name in SCRIPTS]
    listed = [f'{{"run":{json.dumps(run)},"replay":{text}}}' for run, text in replays.items()]
    parts = {
        "HEADING": _escaped(heading),
        "STYLE": _palette() + (folder / "style.css").read_text(),
        "DATA": embedded(json.dumps(data, separators=(",", ":"), allow_nan=False)),
        "REPLAYS": embedded(f"[{','.join(listed)}]"),
        "PLAYER": _script(viewer_script()) if replays else "",
        "SCRIPT": _script("\n".join(scripts)),
    }
    text = (folder / "index.html").read_text()
    head, *rest = text.split("<!--@")
    return head + "".join(parts[name] + tail for name, tail in (piece.split("@-->", 1) for piece in rest))


def _palette() -> str:
    """The methods' colours as style rules: `.c0` sets `--c`, on a light or a dark ground."""
    rules = []
    for root, colours in ((":root", COLOURS), (':root[data-theme="dark"]', DARK_COLOURS)):
        rules.append(f"{root} {{ {' '.join(f'--c{i}: {colour};' for i, colour in enumerate(colours))} }}")
    rules += [f".c{i} {{ --c: var(--c{i}); }}" for i in range(len(COLOURS))]
    return "\n".join(rules) + "\n"


def _script(text: str) -> str:
    """JavaScript that cannot end its element: `</` occurs only in strings and comments, where `<\\/` means the same."""
    return text.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")
