"""Numbers formatted for people, in the views and tables of a run."""

import itertools
import math
from collections.abc import Sequence

BARS = "▁▂▃▄▅▆▇█"


def duration(seconds: float) -> str:
    """`45 s`, `3 min 12 s`, `2 h 05 min`, `1 d 04 h`; a dash if unknown."""
    if not math.isfinite(seconds) or seconds < 0:
        return "-"
    total = round(seconds)
    days, hours, minutes = total // 86400, total // 3600 % 24, total // 60 % 60
    if days:
        return f"{days} d {hours:02d} h"
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {total % 60:02d} s" if minutes else f"{total} s"


def policies(number: int) -> str:
    """`1 policy`, `6 policies`."""
    return "1 policy" if number == 1 else f"{number} policies"


def percent(fraction: float) -> str:
    """`12%`."""
    return f"{fraction:.0%}" if math.isfinite(fraction) else "-"


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
    if size == 0:
        return "0"
    if size >= 1e7 or size < 1e-3:
        return f"{number:.2e}"
    exponent = int(f"{size:.2e}".partition("e")[2])  # After rounding: 0.00999… counts as 0.01.
    decimals = 2 - exponent + (exponent >= 2)
    return f"{number:,.{max(0, decimals)}f}"


def pair(mean: float, deviation: float) -> str:
    """`79,374 ± 1`: both to the same decimals, three significant digits of the larger, four from a hundred on."""
    if not math.isfinite(mean):
        return "–"
    size = max(abs(mean), deviation if math.isfinite(deviation) else 0.0)
    spread = math.isfinite(deviation)
    if size != 0 and (size >= 1e7 or size < 1e-3):
        return f"{mean:.1e} ± {deviation:.1e}" if spread else f"{mean:.1e}"
    decimals = 0 if size == 0 else max(0, 2 - math.floor(math.log10(size)) + (size >= 100))
    return f"{mean:,.{decimals}f} ± {deviation:,.{decimals}f}" if spread else f"{mean:,.{decimals}f}"


def sparkline(values: Sequence[float], width: int) -> str:
    """Draw the course of a quantity in one line; each character is the mean of a stretch of the values."""
    thinned = values[:: 1 + len(values) // 1024]  # drawing stays cheap however long a run is
    finite = [value for value in thinned if math.isfinite(value)]
    bars = min(width, len(finite))
    edges = [round(bar * len(finite) / bars) for bar in range(bars + 1)] if bars else []
    means = [sum(finite[a:b]) / (b - a) for a, b in itertools.pairwise(edges)]
    low, high = min(means, default=0), max(means, default=0)
    return "".join(BARS[min(7, int((mean - low) / ((high - low) or 1) * 8))] for mean in means)
