"""The metrics of a long run: small on the disk, quick to read, complete whatever is killed when."""

import gzip
import itertools
import math
import os
from typing import Any

import numpy as np
import pytest

from echelon.logging.metrics import MetricsWriter
from echelon.logging.tensor_board import stride
from echelon.runs import metrics as module
from echelon.runs.folder import RunFolder
from echelon.runs.metrics import read_columns, read_metrics


def line(iteration: int) -> dict[str, Any]:
    """One in five lines has a metric of its own, and one value is never finite."""
    more = {"ess": 0.1 * iteration} if iteration % 5 == 0 else {}
    return {"iteration": iteration, "env_steps": 100 * iteration, "a,b": 1 / iteration, "bad": math.nan} | more


def expected(iteration: int) -> dict[str, Any]:
    """As it is read back: seven digits."""
    return {name: x if isinstance(x, int) else float(f"{x:.7g}") for name, x in line(iteration).items()}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line has about 70 bytes: of 15 that are there, seven or eight stay."""
    monkeypatch.setattr(module, "LIVE_BYTES", 1000)


def write(folder: RunFolder, first: int, last: int) -> None:
    with MetricsWriter(folder, first - 1) as writer:
        for iteration in range(first, last + 1):
            writer.write(line(iteration))


def assert_lines(folder: RunFolder, last: int) -> None:
    found = read_metrics(folder)
    assert [str(x) for x in found] == [str(expected(i)) for i in range(1, last + 1)]  # NaN is not equal to itself
    columns = read_columns(folder, lambda name: name in ("a,b", "ess"))
    assert set(columns) == {"iteration", "a,b", "ess"}
    assert columns["iteration"].tolist() == list(range(1, last + 1))
    wanted = [expected(i).get("ess", math.nan) for i in range(1, last + 1)]
    np.testing.assert_array_equal(columns["ess"], wanted)


def test_older_lines_move_to_files_that_zcat_shows(folder: RunFolder) -> None:
    write(folder, 1, 100)
    assert_lines(folder, 100)
    assert folder.metrics.stat().st_size <= 1100
    files = sorted((folder.path / "metrics").iterdir())
    assert len(files) > 5
    assert min(len(gzip.decompress(file.read_bytes()).splitlines()) for file in files) > 5  # none of a single row
    head, first, *_ = gzip.decompress(files[0].read_bytes()).decode().splitlines()
    assert head == 'iteration,env_steps,"a,b",bad,ess'
    assert first == "1,100,1.0,nan,"


def test_a_short_run_has_one_file(folder: RunFolder) -> None:
    write(folder, 1, 10)
    assert not (folder.path / "metrics").exists()


@pytest.mark.parametrize("completed", [0, 1, 37, 60, 95, 100])
def test_a_resumed_run_drops_what_came_after(folder: RunFolder, completed: int) -> None:
    write(folder, 1, 100)
    write(folder, completed + 1, 103)
    assert_lines(folder, 103)


def test_a_kill_at_any_file_operation_loses_no_line(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dies before the first, second, ... file is synced or renamed; what was written is there, once."""

    class Crash(BaseException):
        pass

    for crash_at in itertools.count():
        left = crash_at

        def dying(operation: Any) -> Any:
            def wrapped(*args: Any) -> Any:
                nonlocal left
                left -= 1
                if left < 0:
                    raise Crash
                return operation(*args)

            return wrapped

        written = 0
        try:
            with MetricsWriter(folder) as writer, monkeypatch.context() as patch:
                patch.setattr(os, "fsync", dying(os.fsync))
                patch.setattr(os, "replace", dying(os.replace))
                for written in range(1, 41):
                    writer.write(line(written))
        except Crash:
            assert_lines(folder, written)
            write(folder, written + 1, 60)
            assert_lines(folder, 60)
        else:
            break
    assert crash_at > 10


def test_a_damaged_file_is_named_and_the_others_are_read(folder: RunFolder) -> None:
    write(folder, 1, 100)
    first, second, *_ = sorted((folder.path / "metrics").iterdir())
    second.write_bytes(second.read_bytes()[:-20])
    with pytest.warns(UserWarning, match=rf"{second.name} is damaged \(.+\) and was skipped"):
        found = [x["iteration"] for x in read_metrics(folder)]
    assert found[0] == 1
    assert found[-1] == 100
    assert len(found) < 100
    first.write_bytes(gzip.compress(b"iteration,a\n1,2\n3\n"))
    with pytest.warns(UserWarning, match="its rows are not whole"):
        read_columns(folder, lambda name: True)


def test_a_large_file_of_an_older_version_is_split_when_it_goes_on(folder: RunFolder) -> None:
    folder.metrics.write_text("".join(f'{{"iteration": {i}, "x": 0.12345678901234567}}\n' for i in range(1, 201)))
    with MetricsWriter(folder, 200) as writer:
        writer.write({"iteration": 201, "x": 0.5})
    assert [x["iteration"] for x in read_metrics(folder)] == list(range(1, 202))
    assert folder.metrics.stat().st_size < 700


def test_tensorboard_gets_all_of_a_short_run_and_a_few_thousand_points_of_any_other() -> None:
    """All of 1,024, then 256 of each doubling: 1024 + 256 · log2(100,000 / 1024) = 2,715, and less than one more."""
    shown = [i for i in range(1, 100_001) if i % stride(i) == 0]
    assert shown[:1024] == list(range(1, 1025))
    assert len(shown) == 1024 + 6 * 256 + (100_000 - 65_536) // 256
