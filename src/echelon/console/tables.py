"""Tables of the commands, and their progress line."""

import shutil
import sys
from collections.abc import Collection, Iterable, Sequence

LOG_WIDTH = 240
"""Columns of a table that does not go to a terminal, where rich would fold it to 80."""


def text_table(rows: Iterable[Sequence[str]], headings: Sequence[str] = (), right: Collection[int] = ()) -> str:
    """Lay out rows in columns, those in `right` aligned right. On a terminal, long text folds inside the last one."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    texts = [[Text(text) for text in row] for row in rows]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=bool(headings))
    columns = len(texts[0]) if texts else len(headings)
    for index in range(columns):
        heading = headings[index] if headings else ""
        table.add_column(heading, justify="right" if index in right else "left", no_wrap=index < columns - 1)
    for row in texts:
        table.add_row(*row)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else LOG_WIDTH
    console = Console(width=width - 2, color_system=None)
    with console.capture() as captured:
        console.print(table)
    return "".join(f"  {line.rstrip()}\n" for line in captured.get().splitlines())


def show_progress(text: str) -> None:
    """Show a line on a terminal's standard error that each text overwrites and an empty one removes."""
    if sys.stderr.isatty():
        line = f"measuring: {text}" if text else ""
        print(f"\r{line:<60}", end="" if text else "\r", file=sys.stderr, flush=True)
