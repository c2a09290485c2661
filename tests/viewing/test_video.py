"""Films: every policy labelled side by side, drawn in another process, and a sentence where that is impossible."""

import json
import subprocess
import sys
import typing
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import mujoco
import numpy as np
import pytest

from echelon.errors import UserError
from echelon.runs.folder import RunFolder
from echelon.runs.replays import Outcome
from echelon.runs.trained import Trained
from echelon.viewing import drawing, video
from echelon.viewing.recorder import record

PIL = pytest.importorskip("PIL.Image")


@pytest.fixture(scope="session")
def film(hopper: RunFolder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six frames of three hoppers, of which the second fails after three; skipped where nothing can be drawn."""
    out = tmp_path_factory.mktemp("films") / "deep" / "all.gif"
    tapes = [replace(tape, qpos=tape.qpos[:6]) for tape in record(Trained.load(hopper), seed=3)]
    tapes[1] = replace(tapes[1], qpos=tapes[1].qpos[:3], outcome="failed")
    try:
        video.draw(tuple(tapes), out, "gif")
    except UserError as error:
        pytest.skip(str(error))
    return out


def frames(film: Path) -> list[np.ndarray]:
    with PIL.open(film) as gif:
        pictures = []
        for frame in range(gif.n_frames):
            gif.seek(frame)
            pictures.append(np.asarray(gif.convert("RGB")).astype(int))
    return pictures


def test_policies_stand_side_by_side(film: Path) -> None:
    """Three policies make a grid of two columns; panels differ where the policies do, and in their labels."""
    pictures = frames(film)
    width, height = drawing.PANEL_PIXELS["gif"][1]
    assert len(pictures) == 6
    assert all(picture.shape == (2 * height, 2 * width, 3) for picture in pictures)
    label, below = slice(0, height // 6), slice(height // 6, height)
    leader, follower = slice(0, width), slice(width, None)

    def difference(*panels: tuple[int, slice], rows: slice) -> float:
        one, other = (pictures[frame][rows, columns] for frame, columns in panels)
        return float(np.abs(one - other).mean())

    assert difference((0, leader), (0, follower), rows=below) < 2  # the same start
    assert difference((0, leader), (0, follower), rows=label) > 1  # "leader" is not "follower 1"
    assert difference((0, leader), (5, leader), rows=below) > 1
    # After its end the follower stands still, and its label says why.
    assert difference((2, follower), (5, follower), rows=below) < 0.5
    assert difference((2, follower), (5, follower), rows=label) > 1
    # 128 colours for the whole picture: the empty place is dark, if not to the digit.
    assert pictures[0][height:, width:].max() < 50
    assert [path.name for path in film.parent.iterdir()] == ["all.gif"]  # nothing of the drawing is left


def test_an_mp4_of_one_is_larger(hopper: RunFolder, film: Path, tmp_path: Path) -> None:
    encoder = pytest.importorskip("imageio_ffmpeg", reason="needs pip install -e '.[video]'")
    tapes = [replace(tape, qpos=tape.qpos[:4]) for tape in record(Trained.load(hopper), "1")]
    video.draw(tapes, tmp_path / "1.mp4", "mp4")
    reader = encoder.read_frames(str(tmp_path / "1.mp4"))
    about = next(reader)
    assert (about["codec"], about["source_size"]) == ("h264", drawing.PANEL_PIXELS["mp4"][0])
    assert about["fps"] == 25
    assert len(list(reader)) == len(tapes[0].qpos)


def test_a_model_without_a_sky_has_a_bright_one(hopper: RunFolder, film: Path, tmp_path: Path) -> None:
    """As a robot's file has none, which MuJoCo draws black. Here the sky becomes a texture that nothing uses."""
    (tape,) = record(Trained.load(hopper), "leader")
    tape = replace(tape, qpos=tape.qpos[:1], model=tape.model.__copy__())
    tape.model.tex_type[:] = int(mujoco.mjtTexture.mjTEXTURE_2D)
    video.draw((tape,), tmp_path / "film.gif", "gif")
    corner = frames(tmp_path / "film.gif")[0][:8, -8:]
    assert np.abs(corner - 255 * np.array(drawing.SKY)).max() < 16


def test_a_film_shows_the_recorded_model_and_how_it_ended(hopper: RunFolder, tmp_path: Path) -> None:
    """An episode that lasts as long as it may needs no words."""
    (tape,) = record(Trained.load(hopper), "leader")
    tape.model.geom_size[:] *= 1.5  # as an environment's own sizes
    words = {"failed": ", failed after 1.5 s", "succeeded": ", succeeded after 1.5 s", "cut": ", cut after 1.5 s"}
    for outcome in typing.get_args(Outcome):
        job = video._write_job((replace(tape, outcome=outcome, seconds=1.5),), tmp_path, "gif")
        assert json.loads(job.read_text())["panels"][0]["ended"] == "leader" + words.get(outcome, "")
    drawn = mujoco.MjModel.from_binary_path(str(tmp_path / "0.mjb"))
    assert np.array_equal(drawn.geom_size, tape.model.geom_size)
    assert np.array_equal(np.load(tmp_path / "0.npz")["qpos"], tape.qpos)


def test_what_cannot_be_drawn_is_one_sentence(
    hopper: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tapes, out = record(Trained.load(hopper), "leader"), tmp_path / "film.gif"
    nothing_works, crashes = (subprocess.CompletedProcess([], code, "", "") for code in (drawing.NO_OPENGL, -11))
    full = subprocess.CompletedProcess([], 1, "", "Traceback ...\nOSError: No space left on device\n")
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    with monkeypatch.context() as patch:
        patch.setattr(video, "_run", tried := Mock(side_effect=[nothing_works, crashes]))
        with pytest.raises(UserError, match=r"libegl1 .* libosmesa6, or use --format html"):
            video.draw(tapes, out, "gif")
        patch.setattr(video, "_run", Mock(return_value=full))
        with pytest.raises(UserError, match="could not be drawn: OSError: No space left on device"):
            video.draw(tapes, out, "gif")
    monkeypatch.setenv("MUJOCO_GL", "nonsense")  # really run: the process cannot even import MuJoCo then
    with pytest.raises(UserError, match="MUJOCO_GL=nonsense does not work here"):
        video.draw(tapes, out, "gif")
    assert [call.args[1] for call in tried.call_args_list] == ["egl", "osmesa"]
    assert list(tmp_path.iterdir()) == []
