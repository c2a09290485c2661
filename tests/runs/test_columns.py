"""Columns picked out of lines by patterns are what parsing every line gives."""

import json
import math
import random
import warnings
from pathlib import Path

import numpy as np
import pytest

from echelon.runs import columns
from echelon.runs.columns import line_columns
from echelon.runs.json_lines import read_lines

ODD = [
    b'{"iteration": 7, "a": 1, "a": 2}\n',  # a name twice: the last counts
    b'{"iteration":8,"a":3,"b":4}\n',  # other spacing
    b'{"a": 5, "iteration": 9}\n',  # another order
    b'{"iteration": 10, "a": NaN, "b": Infinity, "c": true}\n',
    b'{"iteration": 11, "a": "6", "b": [7], "c": {"a": 8}}\n',
    b'{"iteration": 12, "a": ' + b"9" * 400 + b', "b": 1E5}\n',
    b'{"iteration": 13, "a": -0.0, "b": 1e-07, "c": -12.5e+300}\n',
    b'{"iteration": 14, "x.*(": 1, "h\\u00e4": 2, "a": 3}\n',
]
DAMAGED = [
    b'{"iteration": 3, "a": 1, "b"\n',
    b'{"iteration": 3.5, "a": 1}\n',
    b'{"iteration": -1, "a": 01}\n',
    b"\xff\n",
]
CUT = b'{"iteration": 99, "a": 1, "b": 2, "c": 3}'


def by_parsing(path: Path) -> dict[str, list[float]]:
    """The same, written differently: line by line, by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lines = read_lines(path)
    names = dict.fromkeys(name for line in lines for name in line if name in ("iteration", "a", "b", "hä"))

    def number(value: object) -> float:
        return float(value) if isinstance(value, float) or (isinstance(value, int) and value < 2**53) else math.nan

    return {name: [number(line.get(name)) for line in lines] for name in names}


@pytest.mark.parametrize("most", [0, 1, 12])
def test_any_mix_of_layouts_odd_and_damaged_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(columns, "MAX_PATTERNS", most)
    rng = random.Random(0)
    lines = [*ODD, *DAMAGED]
    for iteration in range(200):
        names = rng.choice((("a", "b", "c"), ("c", "a"), ("hä", "b")))
        line = {"iteration": iteration} | {name: rng.choice((None, 3, 0.1, -1e-30, rng.random())) for name in names}
        lines.append(json.dumps(line).encode() + b"\n")
    rng.shuffle(lines)
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b"".join(lines) + CUT)
    with pytest.warns(UserWarning, match="is damaged") as told:
        found = line_columns(path, ("a", "b", "hä").__contains__)
    assert len(told) == len(DAMAGED)
    expected = by_parsing(path)
    assert found.keys() == expected.keys()
    for name, column in expected.items():
        np.testing.assert_array_equal(
            np.where(np.isinf(found[name]), np.nan, found[name]), np.where(np.isinf(column), np.nan, column)
        )


def test_without_a_file_there_are_none(tmp_path: Path) -> None:
    assert line_columns(tmp_path / "metrics.jsonl", bool) == {}
