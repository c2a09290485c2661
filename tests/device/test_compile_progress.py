"""The progress message while kernels compile: shown when compiling takes long, and only then."""

import time
from pathlib import Path

import pytest

from echelon.device import compile_progress as compiling


def compile_something(cache: Path, seconds: float) -> None:
    with compiling.announced(cache, "for this scene"):
        (cache / "module").mkdir(exist_ok=True)
        (cache / "module" / f"{len(list(cache.glob('*/*')))}.ptx").touch()
        time.sleep(seconds)


def test_a_long_compilation_is_announced_and_timed(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling, "QUIET_SECONDS", 0.05)
    compile_something(tmp_path, 0.2)
    first, last = capsys.readouterr().err.splitlines()
    assert first == "compiling GPU kernels, once for this scene"
    assert last == f"compiled GPU kernels in 0 s; the next start finds them in {tmp_path}"
    compile_something(tmp_path, 0.2)  # into a folder that was there already
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_what_loads_at_once_is_silent(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """Also where there is no cache yet."""
    compile_something(tmp_path, 0.0)
    with compiling.announced(tmp_path / "none", "for these sizes"):
        pass
    assert capsys.readouterr().err == ""


def test_kernels_that_load_slowly_are_not_said_to_be_compiled(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling, "QUIET_SECONDS", 0.02)
    monkeypatch.setattr(compiling, "POLL_SECONDS", 0.02)
    (tmp_path / "module").mkdir()
    (tmp_path / "module" / "0.ptx").touch()
    with compiling.announced(tmp_path, "for this scene"):
        time.sleep(0.15)
    assert capsys.readouterr().err == ""
