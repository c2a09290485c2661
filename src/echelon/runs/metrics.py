"""The log of a run, as files of JSON lines: metrics, KL matrices and takeovers.

Every line has `iteration`, the number of iterations done when it was written, so the first is 1. Floats have the seven
digits that a float32 holds; a value that is not finite is written as null and read back as NaN.

Metrics are thinned in a long run so that the file stays small. Written are the first 1,024 iterations, then 256 of
every doubling, those that a checkpoint was saved after, and the last of every start. A line that is written stays.
"""

import dataclasses
import json
import math
import os
import warnings
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from echelon.errors import UserError
from echelon.runs.durable import replace_durably, writing
from echelon.runs.folder import RunFolder
from echelon.runs.trackers import TensorBoard, WeightsAndBiases
from echelon.runs.untrusted import MAX_NUMBERS, Unreadable, parse_json, read_raw_lines

METRICS, DISTANCES = "metrics.jsonl", "diagnostics/kl.jsonl"
GENEALOGY = "population/genealogy.jsonl"
"""Which member of a population copied which, and its hyperparameters afterwards."""
ALL_UNTIL, PER_DOUBLING = 1024, 256
MAX_WARNINGS = 10
"""Damaged lines of a file that are named."""
MAX_INTEGER = 2**1000
"""Integers below it are read as floats; one of hundreds of digits is damage."""
Column = NDArray[np.float64]
Line = dict[str, Any]


class RunWriter(AbstractContextManager["RunWriter"]):
    """Appends to the log of a run, to TensorBoard and, if asked for, to Weights & Biases."""

    def __init__(self, folder: RunFolder, completed: int = 0) -> None:
        """Continue after `completed` iterations: later lines are dropped, so that no iteration appears twice."""
        self._folder, self._files = folder.path, dict[str, FileIO]()
        self._left_out: Mapping[str, float] | None = None
        last = _drop_after(folder.path / METRICS, completed, warn=True)
        for name in (DISTANCES, GENEALOGY):
            _drop_after(folder.path / name, completed)
        self._append(METRICS, [])  # fails now, not after the first iteration, if the file cannot be written
        logged = last["iteration"] if last else 0
        gap = f"metrics.jsonl lacks iterations {logged + 1} to {completed}: the curves of this run have a gap there"
        self.gap = gap if logged < completed else None
        """A warning if iterations before the checkpoint are missing in the file."""
        self._board = TensorBoard(folder.path / "tensorboard", last)
        self._wandb = WeightsAndBiases(folder) if folder.config.wandb != "off" else None

    def write(self, line: Mapping[str, float]) -> None:
        """Append the metrics of an iteration. One that is thinned out is kept until it is known not to be the last."""
        self._left_out, iteration = line, int(line["iteration"])
        if iteration % stride(iteration) == 0:
            self._write_left_out()
            self._board.write(line)
        if self._wandb:
            self._wandb.write(line)

    def send_film(self, iteration: int, env_steps: int) -> None:
        """Send what `--film-every` drew after an iteration, if anything, to Weights & Biases."""
        for path in self._folder.glob(f"films/iteration-{iteration:06d}.*") if self._wandb else ():
            self._wandb.film(path, env_steps)  # pyright: ignore[reportOptionalMemberAccess]

    def write_distances(self, iteration: int, env_steps: int, matrix: list[list[float]]) -> None:
        """Append a KL matrix. `matrix[i][j]` is the mean KL from policy i to policy j on states of policy i."""
        self._append(DISTANCES, [{"iteration": iteration, "env_steps": env_steps, "kl": matrix}])

    def write_takeovers(self, iteration: int, env_steps: int, takeovers: Sequence[Mapping[str, Any]]) -> None:
        """Append a line per takeover in a population; those of iteration 0 are the members' first hyperparameters."""
        self._append(GENEALOGY, [{"iteration": iteration, "env_steps": env_steps, **one} for one in takeovers])

    def sync(self) -> None:
        """Wait until all lines are on the disk."""
        self._write_left_out()
        for name, file in self._files.items():
            with writing(self._folder / name):
                os.fsync(file.fileno())

    def close(self) -> None:
        """Flush what is still buffered."""
        try:
            self._write_left_out()
            for file in self._files.values():
                file.close()
            self._board.close()
        finally:
            if self._wandb:
                self._wandb.close()

    def _write_left_out(self) -> None:
        if self._left_out is not None:
            line, self._left_out = self._left_out, None  # one that could not be written is not tried again
            self._append(METRICS, [line])

    def _append(self, name: str, lines: Iterable[Mapping[str, Any]]) -> None:
        """Append to a file, creating it and its subfolder if needed, but not the run folder."""
        path = self._folder / name
        with writing(path):
            if name in self._files and not (path.exists() and os.fstat(self._files[name].fileno()).st_nlink):
                self._files.pop(name).close()
                told = f"{path} was deleted or replaced while the run trained; its lines from here on are added to it"
                warnings.warn(told, UserWarning, stacklevel=3)
            if name not in self._files:
                if path.parent != self._folder:
                    path.parent.mkdir(exist_ok=True)
                self._files[name] = path.open("ab", buffering=0)
            data = "".join(json.dumps(jsonable(line, digits=7)) + "\n" for line in lines).encode()
            while data:
                data = data[self._files[name].write(data) or 0 :]

    def __exit__(self, *error: Any) -> None:
        with suppress(*([UserError] if error[0] else [])):  # the first error is the more useful one
            self.close()


def stride(iteration: int) -> int:
    """Iterations from one that is written to the next."""
    if iteration <= ALL_UNTIL:
        return 1
    doubling = 1 << (iteration - 1).bit_length() - 1  # the power of two below
    return doubling // PER_DOUBLING


def jsonable(value: Any, digits: int = 17) -> Any:
    """Plain JSON data, of dataclasses and arrays too; numbers are rounded to `digits`, null where not finite."""
    if isinstance(value, float):  # first, because a page has millions
        return float(f"{value:.{digits}g}") if math.isfinite(value) else None
    if value is None or isinstance(value, int | str):
        return value
    if isinstance(value, list | tuple):
        return [jsonable(item, digits) for item in value]
    if isinstance(value, Mapping) or dataclasses.is_dataclass(value):
        fields = value if isinstance(value, Mapping) else vars(value)
        return {name: jsonable(item, digits) for name, item in fields.items()}
    return jsonable(value.tolist() if isinstance(value, np.ndarray) else float(value), digits)


def read_metrics(folder: RunFolder | str | Path) -> list[dict[str, float]]:
    """All lines of a run, in order, without a last one that a kill cut short; damaged lines give a warning."""
    path = folder.path if isinstance(folder, RunFolder) else Path(folder)
    lines = read_lines(path / METRICS, warn=True)
    return [{name: math.nan if value is None else value for name, value in line.items()} for line in lines]


def read_columns(run: Path, wanted: Callable[[str], object]) -> dict[str, Column]:
    """`iteration` and the wanted metrics as an array `[lines]` each; NaN where a line has none, or no number."""
    columns, length = dict[str, "array[float]"](), 0
    for _, line in _scan(run / METRICS, warn=True):
        for name, value in (line or {}).items():
            if name == "iteration" or wanted(name):
                column = columns.setdefault(name, array("d"))
                column.extend([math.nan] * (length - len(column)))
                known = isinstance(value, float) or (isinstance(value, int) and abs(value) < MAX_INTEGER)
                column.append(float(value) if known else math.nan)
        length += line is not None
        if len(columns) * length > MAX_NUMBERS:
            raise Unreadable(f"{METRICS} has {len(columns):,} metrics in {length:,} lines, which is too much")
    return {name: np.array([*column, *[math.nan] * (length - len(column))]) for name, column in columns.items()}


def read_matrices(folder: RunFolder) -> tuple[list[Line], int]:
    """All sound measurements of a run, matrices as arrays `[M, M]`, and the number of lines that are damaged. A KL that
    is not finite, null in the file, is NaN."""
    sound, count, shape = list[Line](), 0, (folder.config.num_policies,) * 2
    for _, line in _scan(folder.path / DISTANCES, warn=False):
        if line is None:
            continue
        count += 1
        with suppress(KeyError, TypeError, ValueError, OverflowError):  # text, ragged rows, hundreds of digits
            matrix, steps = np.array(line["kl"], np.float64), line["env_steps"]
            text = any(isinstance(number, str) for row in line["kl"] for number in row)  # which NumPy would read
            whole = type(steps) is int and 0 <= steps < 2**53
            if whole and not text and matrix.shape == shape and not np.isinf(matrix).any():
                sound.append(line | {"kl": matrix})
    return sound, count - len(sound)


def read_lines(path: Path, warn: bool = False) -> list[Line]:
    """All valid lines; none if there is no file. With `warn`, damaged lines are reported, except a last one that a kill
    cut short."""
    return [line for _, line in _scan(path, warn) if line is not None]


def _drop_after(path: Path, completed: int, warn: bool = False) -> Line | None:
    """Drop damaged lines and those after iteration `completed`, all in a new run; returns the last one that stays."""
    kept, last, dropped = list[bytes](), None, 0
    try:
        for raw, line in _scan(path, warn):
            if line is not None and completed and line["iteration"] <= completed:
                kept.append(raw)
                last = line
            else:
                dropped += 1
    except (OSError, Unreadable) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"{path} cannot be read: {reason}; move it away") from None
    if dropped:
        with writing(path):
            replace_durably(path, b"".join(kept))
    return last


def _scan(path: Path, warn: bool) -> Iterator[tuple[bytes, Line | None]]:
    """The file's lines, as they are and parsed; None where one is damaged or was cut short."""
    told = 0
    for number, raw in enumerate(read_raw_lines(path), start=1):
        line = None
        with suppress(Unreadable):
            line = parse_json(raw) if raw.endswith(b"\n") else None
        if not isinstance(line, dict) or type(line.get("iteration")) is not int or not 0 <= line["iteration"] < 2**53:
            line = None
            if warn and told < MAX_WARNINGS and raw.strip() and raw.endswith(b"\n"):
                told += 1
                warnings.warn(f"line {number} of {path} is damaged and was skipped", UserWarning, stacklevel=4)
        yield raw, line
