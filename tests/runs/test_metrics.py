"""The log of a run: none twice, thinned in a long run, complete whatever is killed when; a damaged line costs only
itself, and a full disk is one sentence that names the file."""

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from echelon.errors import UserError
from echelon.runs.folder import RunFolder
from echelon.runs.metrics import DISTANCES, GENEALOGY, RunWriter, read_columns, read_lines, read_metrics, stride

FULL = Path("/dev/full")


def write(folder: RunFolder, completed: int, *iterations: int, tag: float = 0.0) -> None:
    with RunWriter(folder, completed) as writer:
        for iteration in iterations:
            writer.write({"iteration": iteration, "env_steps": iteration * 100, "return/leader": tag})


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
        lines.write({"iteration": iteration})
        if iteration in (1030, 1032):
            lines.sync()  # as before a checkpoint
    lines.close()
    assert written(folder) == [*range(1, 1025), 1028, 1030, 1032, 1036, 1040, 1044, 1048, 1050]
    again = RunWriter(folder, 1030)
    assert again.gap is None
    for iteration in (1031, 1032, 1033):
        again.write({"iteration": iteration})
    assert written(folder)[-3:] == [1028, 1030, 1032]  # a kill here loses 1033, which no checkpoint follows
    again.close()
    assert written(folder)[-3:] == [1030, 1032, 1033]


def test_resuming_drops_what_came_after_the_checkpoint(folder: RunFolder) -> None:
    assert read_metrics(folder) == []  # none yet
    write(folder, 0, 1, 2, 3, 4, tag=1.0)
    write(folder, 2, 3, 4, 5, tag=2.0)
    lines = read_metrics(folder)
    assert [(line["iteration"], line["return/leader"]) for line in lines] == [(1, 1), (2, 1), (3, 2), (4, 2), (5, 2)]
    assert type(lines[0]["iteration"]) is int
    assert read_metrics(folder.path) == lines
    write(folder, 0, 1)  # starting over
    assert written(folder) == [1]


def test_values_that_are_not_finite_become_null_and_come_back_as_nan(folder: RunFolder) -> None:
    with RunWriter(folder) as writer:
        writer.write({"iteration": 1, "a": math.nan, "b": math.inf, "c": -math.inf, "d": 0.5})
        assert written(folder) == [1]  # a line is there as soon as it is written
    assert json.loads(folder.metrics.read_text()) == {"iteration": 1, "a": None, "b": None, "c": None, "d": 0.5}
    (line,) = read_metrics(folder)
    assert all(math.isnan(line[name]) for name in "abc")
    assert line["d"] == 0.5


def test_kl_matrices_and_takeovers_resume_too(folder: RunFolder, recwarn: pytest.WarningsRecorder) -> None:
    matrix = [[0.0, 0.2, 0.3], [0.1, 0.0, 0.05], [0.4, 0.6, 0.0]]
    with RunWriter(folder) as writer:
        writer.write_takeovers(0, 0, [{"member": 0, "after": {"clip": 0.2}}])
        for iteration in (4, 8):
            writer.write_distances(iteration, 100 * iteration, matrix)
            writer.write_takeovers(iteration, 100 * iteration, [{"member": 1, "donor": 0, "after": {"clip": 0.3}}])
    for name in (DISTANCES, GENEALOGY):
        with (folder.path / name).open("a") as file:
            file.write('{"iteration": 9, "cut sho')
    RunWriter(folder, completed=4).close()
    (found,) = read_lines(folder.path / DISTANCES)
    assert found == {"iteration": 4, "env_steps": 400, "kl": matrix}
    kept = read_lines(folder.path / GENEALOGY)
    assert [(line["env_steps"], line["after"]["clip"]) for line in kept] == [(0, 0.2), (400, 0.3)]
    RunWriter(folder).close()
    assert read_lines(folder.path / GENEALOGY) == []
    # What is no measurement is left out in silence: a report counts warnings as damage of the metrics.
    (folder.path / DISTANCES).write_bytes(b'{"iteration": 10}\n[1]\n{"kl": []}\n\xc3\n{"iteration": 20}\n')
    assert [line["iteration"] for line in read_lines(folder.path / DISTANCES)] == [10, 20]
    assert not recwarn.list


def test_columns_hold_numbers_and_nan_for_all_else(folder: RunFolder) -> None:
    odd = [
        b'{"iteration":8,"a":3,"b":4}\n',  # other spacing
        b'{"a": 5, "iteration": 9}\n',  # another order
        b'{"iteration": 10, "a": NaN, "b": null, "c": true}\n',
        b'{"iteration": 11, "a": "6", "b": [7], "c": {"a": 8}}\n',
        b'{"iteration": 12, "a": ' + b"9" * 400 + b', "b": 1E5}\n',
    ]
    assert read_columns(folder.path, bool) == {}
    folder.metrics.write_bytes(b"".join(odd))
    found = read_columns(folder.path, ("a", "b").__contains__)
    assert set(found) == {"iteration", "a", "b"}
    np.testing.assert_array_equal(found["iteration"], [8, 9, 10, 11, 12])
    np.testing.assert_array_equal(found["a"], [3, 5, math.nan, math.nan, math.nan])
    np.testing.assert_array_equal(found["b"], [4, math.nan, math.nan, math.nan, 1e5])


DAMAGED = [
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
]


def test_a_damaged_line_is_named_and_left_out(folder: RunFolder) -> None:
    whole = [b'{"iteration": 1, "a": null}\n', b'{"iteration": 4}\n']
    for damaged in DAMAGED:
        folder.metrics.write_bytes(whole[0] + damaged + whole[1])
        for read in (lambda: read_metrics(folder), lambda: RunWriter(folder, completed=4).close()):
            with pytest.warns(UserWarning, match=r"line \d of .* is damaged") as said:
                read()
            assert sum(one.category is UserWarning for one in said) == 1, damaged[:20]
        assert folder.metrics.read_bytes() == b"".join(whole), damaged[:20]


def test_a_last_line_that_a_kill_cut_short_is_left_out_without_a_word(folder: RunFolder) -> None:
    for cut in (b'{"iteration": 2', b'{"iteration": 2, "\xc3', b'{"iteration": 2}'):
        folder.metrics.write_bytes(b'{"iteration": 1}\n' + cut)
        assert read_metrics(folder) == [{"iteration": 1}]
        write(folder, 1, 2)
        assert written(folder) == [1, 2]


def test_a_file_that_is_deleted_or_replaced_while_a_run_trains_is_begun_again_and_said_so(folder: RunFolder) -> None:
    with RunWriter(folder) as lines:
        for iteration, change in ((2, Path.unlink), (3, lambda path: (path.unlink(), path.write_text("")))):
            lines.write({"iteration": 1})  # without a word
            change(folder.metrics)
            with pytest.warns(UserWarning, match=r"metrics\.jsonl was deleted or replaced while the run trained"):
                lines.write({"iteration": iteration})
            assert written(folder) == [iteration]


SCRIPT = """
import resource, signal, sys
from pathlib import Path
from echelon.config import TrainConfig
from echelon.errors import UserError
from echelon.runs.folder import RunFolder
from echelon.runs.metrics import RunWriter

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
for limit, value in ((20_000, 1 / 3), (20_000, 1), (10, 1)):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    (place := Path(f"{limit} {value:g}")).mkdir()
    try:
        with RunWriter(RunFolder(place, TrainConfig())) as log:
            for iteration in range(1, 1000):
                log.write({"iteration": iteration} | {f"m{i}": value for i in range(60)})
    except UserError as error:
        print(error, file=sys.stderr)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs a limit on the size of files")
def test_a_disk_that_fills_up_while_a_run_trains(tmp_path: Path) -> None:
    """Files may not grow beyond a limit. Short numbers take more room in TensorBoard's file, long ones in
    metrics.jsonl; ten bytes are full before the first iteration."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    sentences = done.stderr.splitlines()  # no traceback, of no thread
    names = ("20000 0.333333/metrics.jsonl", *(f"{n} 1/tensorboard/events.out.tfevents." for n in (20000, 10)))
    assert [said[: len(name)] for said, name in zip(sentences, names, strict=True)] == [*names]
    assert all(said.endswith(" cannot be written: File too large; make room, then resume") for said in sentences)


@pytest.mark.skipif(not FULL.exists(), reason="needs a device that is always full")
def test_a_full_disk_or_a_kill_leaves_whole_files(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    writes: dict[str, Callable[[RunWriter], None]] = {
        DISTANCES: lambda log: log.write_distances(10, 100, [[0.0, 0.2], [0.1, 0.0]]),
        GENEALOGY: lambda log: log.write_takeovers(4, 400, [{"member": 1}]),
        "metrics.jsonl": lambda log: log.write({"iteration": 1}),
    }
    for name, write in writes.items():
        opened, told = RunWriter(folder), rf"{name} cannot be written: No space left on device"
        write(opened)
        os.dup2(os.open(FULL, os.O_WRONLY), opened._files[name].fileno())
        with pytest.raises(UserError, match=rf"{told}; make room, then resume"):
            write(opened)
        path, lines = folder.path / name, '{"iteration": 1}\n{"iteration": 2}\n'
        path.write_text(lines)
        for error in (OSError(28, "No space left on device"), KeyboardInterrupt(told)):
            with monkeypatch.context() as patch:
                patch.setattr(os, "fsync", Mock(side_effect=error))
                with pytest.raises((UserError, KeyboardInterrupt), match=told):
                    RunWriter(folder, 1)  # drops a line, or leaves all as it was
            assert path.read_text() == lines
        path.unlink()
