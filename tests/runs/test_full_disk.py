"""A full disk is one sentence that names the file, whichever writer meets it first."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from echelon.errors import UserError
from echelon.runs.folder import RunFolder
from echelon.runs.metrics import RunWriter

FULL = Path("/dev/full")

# Files may not grow beyond a limit. Short numbers take more room in TensorBoard's file, long ones in metrics.jsonl.
SCRIPT = """
import resource, signal, sys
from pathlib import Path
from echelon.config import TrainConfig
from echelon.errors import UserError
from echelon.runs.folder import RunFolder
from echelon.runs.metrics import RunWriter

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
limit, value = int(sys.argv[2]), eval(sys.argv[3])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    with RunWriter(RunFolder(Path(sys.argv[1]), TrainConfig())) as log:
        for iteration in range(1, 1000):
            log.write({"iteration": iteration} | {f"m{i}": value for i in range(60)})
except UserError as error:
    sys.exit(str(error))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs a limit on the size of files")
@pytest.mark.parametrize(
    ("limit", "value", "name"),
    [
        (20_000, "1 / 3", "metrics.jsonl"),
        (20_000, "1", "tensorboard/events.out.tfevents."),
        (10, "1", "tensorboard/events.out.tfevents."),  # before the first iteration
    ],
)
def test_metrics_and_tensorboard(tmp_path: Path, limit: int, value: str, name: str) -> None:
    command = [sys.executable, "-c", SCRIPT, str(tmp_path), str(limit), value]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    (sentence,) = done.stderr.splitlines()  # no traceback, of no thread
    assert sentence.startswith(str(tmp_path / name))
    assert sentence.endswith(" cannot be written: File too large; make room, then resume")


WRITERS = pytest.mark.parametrize(
    ("write", "name"),
    [
        (lambda log: log.write_distances(10, 100, [[0.0, 0.2], [0.1, 0.0]]), "diagnostics/kl.jsonl"),
        (lambda log: log.write_takeovers(4, 400, [{"member": 1}]), "population/genealogy.jsonl"),
        (lambda log: log.write({"iteration": 1}), "metrics.jsonl"),
    ],
)


@pytest.mark.skipif(not FULL.exists(), reason="needs a device that is always full")
@WRITERS
def test_files_of_lines(folder: RunFolder, write: Callable[[object], None], name: str) -> None:
    opened = RunWriter(folder)
    write(opened)
    os.dup2(os.open(FULL, os.O_WRONLY), opened._files[name].fileno())
    with pytest.raises(UserError, match=rf"{name} cannot be written: No space left on device; make room, then resume"):
        write(opened)


@WRITERS
def test_dropping_lines(folder: RunFolder, monkeypatch: pytest.MonkeyPatch, write: object, name: str) -> None:
    path = folder.path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text('{"iteration": 1}\n{"iteration": 2}\n')
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match=rf"{name} cannot be written: No space left on device"):
        RunWriter(folder, 1)
    assert path.read_text() == '{"iteration": 1}\n{"iteration": 2}\n'


def test_tensorboards_last_event_is_told_on_closing(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"events\.out\.tfevents\..* cannot be written: No space left"):
        write_without_tensorboard(folder, monkeypatch)


def test_tensorboard_does_not_hide_what_went_wrong_before(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ZeroDivisionError):
        write_without_tensorboard(folder, monkeypatch, lambda: 1 / 0)


def write_without_tensorboard(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch, then: Callable[[], object] = lambda: None
) -> None:
    with RunWriter(folder) as log:
        monkeypatch.setattr("tensorboard.summary.writer.record_writer.RecordWriter.write", full)
        log.write({"iteration": 1})
        then()


def full(*_: object) -> None:
    raise OSError(28, "No space left on device")
