"""`metrics/00000001.csv.gz`: the older metrics of a long run, a row per iteration under a row of names.

A run of 100,000 iterations would have a `metrics.jsonl` of hundreds of megabytes, most of it names. Once the file has
grown large, its older half moves here; a file is named after its first iteration. `zcat` shows one, and whatever reads
CSV reads it. A cell is empty where the line had no such metric, and nan where the value was not finite.
"""

import csv
import gzip
import io
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from echelon.errors import first_line
from echelon.runs.durable import replace_durably, writing

Table = tuple[list[str], list[str]]
"""Names, and a row for each iteration, its cells not taken apart yet: most readers want a few."""


def write_archive(folder: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    """Store lines of metrics in a file of their own, named after the first."""
    names = list(dict.fromkeys(name for line in lines for name in line))
    rows = (",".join(_cell(line[name]) if name in line else "" for name in names) for line in lines)
    _write(folder / f"{lines[0]['iteration']:08d}.csv.gz", names, rows)


def read_archives(folder: Path) -> Iterator[Table]:
    """All files, in order; a damaged one is named by a warning and skipped."""
    for path in _files(folder):
        table = _read(path)
        if table is not None:
            yield table


def archived_line(names: Sequence[str], row: str) -> dict[str, Any]:
    """A row as the line that it was; NaN where a value was not finite."""
    return {name: _value(cell) for name, cell in zip(names, row.split(","), strict=True) if cell}


def archived_columns(
    names: Sequence[str], rows: Sequence[str], wanted: Callable[[str], object]
) -> dict[str, list[float]]:
    """The columns whose names are wanted; NaN where a cell is empty."""
    chosen = {place: name for place, name in enumerate(names) if wanted(name)}
    last = max(chosen, default=0)
    cells = [row.split(",", last + 1) for row in rows]
    return {name: [float(row[place] or "nan") for row in cells] for place, name in chosen.items()}


def last_archived(folder: Path) -> dict[str, Any] | None:
    """The last line that is stored."""
    for path in reversed(_files(folder)):
        table = _read(path)
        if table is not None:
            return archived_line(table[0], table[1][-1])
    return None


def drop_archived_after(folder: Path, completed: int) -> None:
    """Drop rows after iteration `completed`; a new run keeps none."""
    for path in reversed(_files(folder)):
        if int(path.name.split(".")[0]) > completed:
            with writing(path):
                path.unlink()
            continue
        names, rows = _read(path) or ([], [])
        done = archived_columns(names, rows, "iteration".__eq__).get("iteration", [])
        kept = [row for row, iteration in zip(rows, done, strict=True) if iteration <= completed]
        if len(kept) < len(rows):
            _write(path, names, kept)
        return


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.csv.gz") if path.name.split(".")[0].isdigit())


def _read(path: Path) -> Table | None:
    """A file's content; None with a warning if it is damaged."""
    try:
        with gzip.open(path, "rt", newline="") as file:
            names = next(csv.reader([file.readline()]))
            rows = file.read().splitlines()
        place = names.index("iteration")
        whole = (row.count(",") == len(names) - 1 and row.split(",", place + 1)[place].isdigit() for row in rows)
        if rows and all(whole):
            return names, rows
        reason = "its rows are not whole"
    except (OSError, EOFError, zlib.error, ValueError, StopIteration) as error:
        reason = first_line(error)
    warnings.warn(f"{path} is damaged ({reason}) and was skipped", UserWarning, stacklevel=4)
    return None


def _write(path: Path, names: Sequence[str], rows: Iterable[str]) -> None:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(name.replace("\n", " ") for name in names)
    text.writelines(f"{row}\n" for row in rows)
    with writing(path):
        path.parent.mkdir(exist_ok=True)
        replace_durably(path, gzip.compress(text.getvalue().encode(), 6, mtime=0))


def _cell(value: float | None) -> str:
    return "nan" if value is None else repr(value)


def _value(cell: str) -> float:
    return int(cell) if cell.lstrip("-").isdigit() else float(cell)
