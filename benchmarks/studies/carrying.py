"""Unfinished runs as files, to go on with on another machine."""

import tarfile
from pathlib import Path

from echelon.errors import UserError
from echelon.grid import Cell


def pack(cells: list[Cell], carry: Path) -> None:
    """A file for each of these runs that has begun, with its newest checkpoint; files of other runs are removed."""
    carry.mkdir(parents=True, exist_ok=True)
    packed: set[str] = set()
    for cell in cells:
        saved = sorted(path for path in (cell.path / "checkpoints").glob("*") if path.name.isdigit())
        if not saved:
            continue
        kept = [cell.path / name for name in ("config.json", "metrics.jsonl", "diagnostics", "population")]
        with tarfile.open(carry / f"{cell.name}.new", "w") as file:
            for path in [*kept, max(saved, key=lambda path: int(path.name))]:
                if path.exists():
                    file.add(path, Path(cell.name) / path.relative_to(cell.path))
        (carry / f"{cell.name}.new").replace(carry / f"{cell.name}.tar")
        packed.add(cell.name)
    for path in carry.glob("*.tar"):
        if path.stem not in packed:
            path.unlink()


def unpack(carry: Path, runs: Path) -> None:
    """The runs that an earlier machine packed, but for those that are here."""
    for path in sorted(carry.glob("*.tar")):
        if not (runs / path.stem).exists():
            try:
                with tarfile.open(path) as file:
                    file.extractall(runs / ".unpacked", filter="data")
            except (tarfile.TarError, OSError) as error:
                raise UserError(f"{path} cannot be unpacked ({error}); remove it to train this run anew") from None
            (runs / ".unpacked" / path.stem).rename(runs / path.stem)
