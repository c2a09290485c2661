"""Metrics: thinned in a long run, complete whatever is killed when; damaged lines cost only themselves."""

import json
import math
from typing import Any

import numpy as np
import pytest

from echelon.runs.folder import RunFolder
from echelon.runs.metrics import RunWriter, read_columns, read_metrics, stride


def line(iteration: int) -> dict[str, Any]:
    """One in five lines has a metric of its own, and one value is never finite."""
    more = {"ess": 0.1 * iteration} if iteration % 5 == 0 else {}
    return {"iteration": iteration, "a,b": 1 / iteration, "bad": math.nan} | more


def written(folder: RunFolder) -> list[int]:
    return [int(line["iteration"]) for line in read_metrics(folder)]


def test_all_of_a_short_run_and_a_few_thousand_lines_of_any_other() -> None:
    """All of 1,024, then 256 of each doubling: 1024 + 256 · log2(100,000 / 1024) = 2,715, and less than one more."""
    shown = [i for i in range(1, 100_001) if i % stride(i) == 0]
    assert shown[:1024] == list(range(1, 1025))
    assert len(shown) == 1024 + 6 * 256 + (100_000 - 65_536) // 256


def test_checkpoints_and_the_last_iteration_have_lines_and_none_is_there_twice(folder: RunFolder) -> None:
    lines = RunWriter(folder)
    for iteration in range(1, 1051):
        lines.write(line(iteration))
        if iteration in (1030, 1032):
            lines.sync()  # as before a checkpoint
    lines.close()
    assert written(folder) == [*range(1, 1025), 1028, 1030, 1032, 1036, 1040, 1044, 1048, 1050]
    again = RunWriter(folder, 1030)
    assert again.gap is None
    again.write(line(1031))
    again.write(line(1032))
    again.write(line(1033))
    assert written(folder)[-3:] == [1028, 1030, 1032]  # a kill here loses 1033, which no checkpoint follows
    again.close()
    assert written(folder)[-3:] == [1030, 1032, 1033]


def test_columns_hold_numbers_and_nan_for_all_else(folder: RunFolder) -> None:
    odd = [
        b'{"iteration":8,"a":3,"b":4}\n',  # other spacing
        b'{"a": 5, "iteration": 9}\n',  # another order
        b'{"iteration": 10, "a": NaN, "b": null, "c": true}\n',
        b'{"iteration": 11, "a": "6", "b": [7], "c": {"a": 8}}\n',
        b'{"iteration": 12, "a": ' + b"9" * 400 + b', "b": 1E5}\n',
    ]
    assert read_columns(folder, bool) == {}
    folder.metrics.write_bytes(b"".join(odd))
    found = read_columns(folder, ("a", "b").__contains__)
    assert set(found) == {"iteration", "a", "b"}
    np.testing.assert_array_equal(found["iteration"], [8, 9, 10, 11, 12])
    np.testing.assert_array_equal(found["a"], [3, 5, math.nan, math.nan, math.nan])
    np.testing.assert_array_equal(found["b"], [4, math.nan, math.nan, math.nan, 1e5])


@pytest.mark.parametrize(
    "damaged",
    [
        b'{"itera\n',
        b'{"iteration": 2.5}\n',
        b'{"iteration": -1, "a": 1}\n',
        b'{"iteration": true}\n',
        b"[3]\n",
        b"\xff\n",
        b'{"iteration": 2, "a": "\\ud800"}\n',
        b'{"iteration": 2, "a": ' + 2000 * b"[" + 2000 * b"]" + b"}\n",
        b'{"iteration": 2, "a": ' + 70 * b"[" + 70 * b"]" + b"}\n",
        json.dumps({"iteration": 2} | {f"a{i}": 1 for i in range(10_000)}).encode() + b"\n",
        b'{"iteration": 2, "a": "' + (1 << 24) * b"x" + b'"}\n',
    ],
    ids=lambda damaged: damaged[:20].decode(errors="replace").strip(),
)
def test_a_damaged_line_is_named_and_left_out(folder: RunFolder, damaged: bytes) -> None:
    whole = [b'{"iteration": 1, "a": null}\n', b'{"iteration": 4}\n']
    folder.metrics.write_bytes(whole[0] + damaged + whole[1])
    for read in (lambda: read_metrics(folder), lambda: RunWriter(folder, completed=4).close()):
        with pytest.warns(UserWarning, match=r"line \d of .* is damaged") as said:
            read()
        assert sum(one.category is UserWarning for one in said) == 1
    assert folder.metrics.read_bytes() == b"".join(whole)


@pytest.mark.parametrize("cut", [b'{"iteration": 2', b'{"iteration": 2, "\xc3', b'{"iteration": 2}'])
def test_a_last_line_that_a_kill_cut_short_is_left_out_without_a_word(folder: RunFolder, cut: bytes) -> None:
    folder.metrics.write_bytes(b'{"iteration": 1}\n' + cut)
    assert read_metrics(folder) == read_metrics(folder.path) == [{"iteration": 1}]
    lines = RunWriter(folder, 1)
    lines.write({"iteration": 2})
    lines.close()
    assert folder.metrics.read_bytes() == b'{"iteration": 1}\n{"iteration": 2}\n'
