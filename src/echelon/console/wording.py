"""Numbers and tables, laid out for people."""

import itertools
import math
import shutil
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence

BARS = "▁▂▃▄▅▆▇█"
LOG_WIDTH = 240
"""Columns of a table that does not go to a terminal, where rich would fold it to 80."""


def duration(seconds: float) -> str:
    """`45 s`, `3 min 12 s`, `2 h 05 min`, `1 d 04 h`; a dash if unknown."""
    if not math.isfinite(seconds) or seconds < 0:
        return "-"
    total = round(seconds)
    for size, unit, part, smaller in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if total >= size:
            return f"{total // size} {unit} {total % size // part:02d} {smaller}"
    return f"{total} s"


def count(number: float) -> str:
    """`812`, `45.2 k`, `1.31 M`, `20.0 G`."""
    if not math.isfinite(number):
        return "-"
    for unit, suffix in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(number) >= unit * 0.9995:
            scaled = number / unit
            return f"{scaled:.{2 if abs(scaled) < 9.995 else 1 if abs(scaled) < 99.95 else 0}f}{suffix}"
    return f"{number:.0f}"


def figure(number: float) -> str:
    """Three significant digits, four from a hundred on; an exponent only for very large and very small numbers."""
    if not math.isfinite(number):
        return "-"
    size = abs(number)
    if size != 0 and (size >= 1e7 or size < 1e-3):
        return f"{number:.2e}"
    exponent = int(f"{size:.2e}".partition("e")[2])  # After rounding: 0.00999… counts as 0.01.
    return f"{number:,.{max(0, 2 - exponent + (exponent >= 2))}f}" if size else "0"


def pair(mean: float, deviation: float) -> str:
    """`79,374 ± 1`: both to the same decimals, three significant digits of the larger, four from a hundred on."""
    if not math.isfinite(mean):
        return "–"
    spread = math.isfinite(deviation)
    size = max(abs(mean), deviation if spread else 0.0)
    if size != 0 and (size >= 1e7 or size < 1e-3):
        form = ".1e"
    else:
        form = f",.{0 if size == 0 else max(0, 2 - math.floor(math.log10(size)) + (size >= 100))}f"
    return f"{mean:{form}} ± {deviation:{form}}" if spread else f"{mean:{form}}"


def listed(figures: Mapping[str, str]) -> str:
    """`return 412.3  KL 0.0151`, without unknown figures."""
    return "  ".join(f"{name} {text}".strip() for name, text in figures.items() if text != "-")


def sparkline(values: Sequence[float], width: int) -> str:
    """Draw the course of a quantity in one line; each character is the mean of a stretch of the values."""
    thinned = values[:: 1 + len(values) // 1024]  # drawing stays cheap however long a run is
    finite = [value for value in thinned if math.isfinite(value)]
    bars = min(width, len(finite))
    edges = [round(bar * len(finite) / bars) for bar in range(bars + 1)] if bars else []
    means = [sum(finite[a:b]) / (b - a) for a, b in itertools.pairwise(edges)]
    low, high = min(means, default=0), max(means, default=0)
    return "".join(BARS[min(7, int((mean - low) / ((high - low) or 1) * 8))] for mean in means)


def text_table(rows: Iterable[Sequence[str]], headings: Sequence[str] = (), right: Collection[int] = ()) -> str:
    """Lay out rows in columns, those in `right` aligned right. On a terminal, long text folds inside the last one."""
    from rich.console import Console
    from rich.table import Table

    rows = [*rows]
    columns = headings or rows[0]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=bool(headings))
    for index, heading in enumerate(columns):
        table.add_column(heading, justify="right" if index in right else "left", no_wrap=index < len(columns) - 1)
    for row in rows:
        table.add_row(*row)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else LOG_WIDTH
    console = Console(width=width - 2, color_system=None, markup=False, highlight=False, emoji=False)
    with console.capture() as captured:
        console.print(table)
    return "".join(f"  {line.rstrip()}\n" for line in captured.get().splitlines())


def show_progress(text: str) -> None:
    """Show a line on a terminal's standard error that each text overwrites and an empty one removes."""
    if sys.stderr.isatty():
        line = f"measuring: {text}" if text else ""
        print(f"\r{line:<60}", end="" if text else "\r", file=sys.stderr, flush=True)
