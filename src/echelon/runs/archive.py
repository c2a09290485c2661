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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from echelon.errors import first_line
from echelon.runs.durable import replace_durably, writing

Table = tuple[list[str], list[list[str]]]
"""Names, and a row of cells for each iteration."""


def write_archive(folder: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    """Store lines of metrics in a file of their own, named after the first."""
    names = list(dict.fromkeys(name for line in lines for name in line))
    rows = ([_cell(line[name]) if name in line else "" for name in names] for line in lines)
    _write(folder / f"{lines[0]['iteration']:08d}.csv.gz", names, rows)


def read_archives(folder: Path) -> Iterator[Table]:
    """All files, in order; a damaged one is named by a warning and skipped."""
    for path in _files(folder):
        table = _read(path)
        if table is not None:
            yield table


def archived_line(names: Sequence[str], row: Sequence[str]) -> dict[str, Any]:
    """A row as the line that it was; NaN where a value was not finite."""
    return {name: _value(cell) for name, cell in zip(names, row, strict=True) if cell}


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
        kept = [row for row in rows if int(row[names.index("iteration")]) <= completed]
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
            rows = [row.split(",") for row in file.read().splitlines()]
        place = names.index("iteration")
        if rows and all(len(row) == len(names) and row[place].isdigit() for row in rows):
            return names, rows
        reason = "its rows are not whole"
    except (OSError, EOFError, zlib.error, ValueError, StopIteration) as error:
        reason = first_line(error)
    warnings.warn(f"{path} is damaged ({reason}) and was skipped", UserWarning, stacklevel=4)
    return None


def _write(path: Path, names: Sequence[str], rows: Iterable[list[str]]) -> None:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(name.replace("\n", " ") for name in names)
    text.writelines(",".join(row) + "\n" for row in rows)
    with writing(path):
        path.parent.mkdir(exist_ok=True)
        replace_durably(path, gzip.compress(text.getvalue().encode(), 6, mtime=0))


def _cell(value: float | None) -> str:
    return "nan" if value is None else repr(value)


def _value(cell: str) -> float:
    return int(cell) if cell.lstrip("-").isdigit() else float(cell)
