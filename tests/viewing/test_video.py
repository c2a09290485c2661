"""Films: every policy labelled side by side, drawn in another process, and a sentence where that is impossible."""

import json
import subprocess
import sys
import typing
from dataclasses import replace
from pathlib import Path

import mujoco
import numpy as np
import pytest

from echelon.errors import UserError
from echelon.evaluation.trained import Trained
from echelon.runs.folder import RunFolder
from echelon.runs.replays import Outcome
from echelon.viewing import drawing, video
from echelon.viewing.recorder import record

PIL = pytest.importorskip("PIL.Image")


@pytest.fixture(scope="session")
def opengl(hopper: RunFolder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A film of three hoppers; tests that take it are skipped where nothing can be drawn without a display."""
    out = tmp_path_factory.mktemp("films") / "all.gif"
    try:
        return video.render(hopper, out, "gif", seed=3)
    except UserError as error:
        pytest.skip(str(error))


def frames(film: Path) -> list[np.ndarray]:
    with PIL.open(film) as gif:
        pictures = []
        for frame in range(gif.n_frames):
            gif.seek(frame)
            pictures.append(np.asarray(gif.convert("RGB")).astype(int))
    return pictures


def test_policies_stand_side_by_side(hopper: RunFolder, opengl: Path) -> None:
    """Three policies make a grid of two columns; panels differ where the policies do, and in their labels."""
    tapes, pictures = record(Trained.load(hopper), seed=3), frames(opengl)
    width, height = drawing.PANEL_PIXELS["gif"][1]
    assert len(pictures) == max(len(tape.qpos) for tape in tapes)
    assert all(picture.shape == (2 * height, 2 * width, 3) for picture in pictures)
    first = pictures[0]
    leader, follower = first[:height, :width], first[:height, width:]
    below = slice(height // 6, None)  # without the label
    assert np.abs(leader[below] - follower[below]).mean() < 2  # the same start
    assert np.abs(leader[: height // 6] - follower[: height // 6]).mean() > 1  # "leader" is not "follower 1"
    # 128 colours for the whole picture: the empty place is dark, if not to the digit.
    assert first[height:, width:].max() < 50
    assert np.abs(pictures[0][:height, :width][below] - pictures[-1][:height, :width][below]).mean() > 1


def test_a_film_of_one_is_larger(hopper: RunFolder, opengl: Path, tmp_path: Path) -> None:
    film = video.render(hopper, tmp_path / "deep" / "one.gif", "gif", policies="leader")
    assert frames(film)[0].shape[:2] == drawing.PANEL_PIXELS["gif"][0][::-1]
    assert [path.name for path in film.parent.iterdir()] == ["one.gif"]  # nothing of the drawing is left


def test_mp4(hopper: RunFolder, opengl: Path) -> None:
    encoder = pytest.importorskip("imageio_ffmpeg", reason="needs pip install 'echelon-rl[video]'")
    film = video.render(hopper, policies="1")
    assert film == hopper.path / "replay" / "1.mp4"
    reader = encoder.read_frames(str(film))
    about = next(reader)
    assert about["codec"] == "h264"
    assert about["source_size"] == drawing.PANEL_PIXELS["mp4"][0]
    assert about["fps"] == 25
    (tape,) = record(Trained.load(hopper), "1")
    assert len(list(reader)) == len(tape.qpos)


def test_a_film_shows_the_environments_own_sizes(hopper: RunFolder, tmp_path: Path) -> None:
    (tape,) = record(Trained.load(hopper), "leader")
    sizes = 1.5 * tape.appearance.size
    video._write_job((replace(tape, appearance=replace(tape.appearance, size=sizes)),), tmp_path, "gif")
    drawn = mujoco.MjModel.from_binary_path(str(tmp_path / "0.mjb"))
    assert drawn.geom_size == pytest.approx(sizes)
    assert np.array_equal(np.load(tmp_path / "0.npz")["qpos"], tape.qpos)


def test_every_outcome_has_its_words(hopper: RunFolder, tmp_path: Path) -> None:
    """An episode that lasts as long as it may needs none."""
    (tape,) = record(Trained.load(hopper), "leader")
    words = {"failed": "failed after 1.5 s", "succeeded": "succeeded after 1.5 s", "cut": "cut after 1.5 s"}
    for outcome in typing.get_args(Outcome):
        job = video._write_job((replace(tape, outcome=outcome, seconds=1.5),), tmp_path, "gif")
        assert json.loads(job.read_text())["panels"][0]["end"] == words.get(outcome, "")


def test_the_caption_says_how_an_episode_ended() -> None:
    states = np.zeros((5, 1)), np.zeros((5, 0, 7))
    panel = drawing.Panel(None, None, None, {"label": "leader", "end": "failed after 0.2 s"}, *states)
    assert [panel.caption(frame) for frame in (0, 4, 5)] == ["leader", "leader", "leader, failed after 0.2 s"]


def test_without_opengl_the_missing_package_is_named(
    hopper: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str | None] = []

    def nothing_works(job: Path, backend: str | None) -> subprocess.CompletedProcess[str]:
        tried.append(backend)
        return subprocess.CompletedProcess([], drawing.NO_OPENGL if len(tried) == 1 else -11, "", "")

    monkeypatch.delenv("MUJOCO_GL", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(video, "_run", nothing_works)
    with pytest.raises(UserError, match=r"libegl1 .* libosmesa6, or use --format html"):
        video.render(hopper, tmp_path / "film.gif", "gif", policies="leader")
    assert tried == ["egl", "osmesa"]
    assert list(tmp_path.iterdir()) == []


def test_a_backend_that_does_not_exist_is_named(
    hopper: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Really run: the process that draws cannot even import MuJoCo then."""
    monkeypatch.setenv("MUJOCO_GL", "nonsense")
    with pytest.raises(UserError, match="MUJOCO_GL=nonsense does not work here"):
        video.render(hopper, tmp_path / "film.gif", "gif", policies="leader")


def test_a_mistake_of_the_drawing_process_is_told(
    hopper: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(job: Path, backend: str | None) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess([], 1, "", "Traceback ...\nOSError: No space left on device\n")

    monkeypatch.setattr(video, "_run", full)
    with pytest.raises(UserError, match="could not be drawn: OSError: No space left on device"):
        video.render(hopper, tmp_path / "film.gif", "gif", policies="leader")


def test_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for format, modules in video.PACKAGES.items():
        for module, package in modules.items():
            monkeypatch.setattr(video, "find_spec", lambda name, module=module: None if name == module else True)
            with pytest.raises(UserError, match=rf"{package}; install it with pip install 'echelon-rl\[video\]'"):
                video.require_packages(format)
