"""`echelon record` from the command line, and a replay in a notebook's cell."""

import html
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import echelon
from echelon.cli import main
from echelon.commands.record import Record, _format
from echelon.errors import UserError
from echelon.runs.folder import RunFolder
from echelon.runs.replays import read_replay, replay_path
from echelon.runs.trained import Trained
from echelon.viewing.page import replay_page
from echelon.viewing.recorder import record


def test_a_page_and_the_replay(hopper: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["record", str(hopper.path), "--format", "html", "--policy", "1", "--seed", "4"]) == 0
    page = hopper.path / "replay" / "1.html"
    said = capsys.readouterr().out
    assert said.splitlines()[0].startswith("follower 1 ")
    assert said.endswith(f"Written to {page}\n")
    text = page.read_text()
    assert text.startswith("<!doctype html>")
    assert "http://" not in text.split("EchelonReplay.mount(")[1]
    assert text.count("<script>") == 2 == text.count("</script>")
    replay = read_replay(replay_path(hopper))
    assert (replay.run, replay.task, replay.algo, replay.iteration, replay.seed) == ("hopper", "Hopper", "cpo", 1, 4)
    assert replay.bodies == ("world", "torso", "thigh", "shank", "foot")
    ((tape,), (episode,)) = record(Trained.load(hopper), "1", seed=4), replay.episodes
    assert episode.policy == 1
    assert np.abs(episode.poses[..., :3] - tape.poses[..., :3]).max() < 1e-5
    # The run's name cannot break the page.
    hostile = replay_page(replace(replay, run="</script><script>alert(1)</script>", task="<b>"))
    assert hostile.count("</script>") == 2
    assert "<b>" not in hostile.split("<script>")[0]


def test_it_says_how_an_episode_ended(
    hopper: RunFolder, franka: RunFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A success is not called a failure. A hopper's episode lasts 24 steps of 0.02 s; a recording of a minute, here
    shortened to 0.1 s, is cut."""

    def said(run: RunFolder) -> str:
        assert main(["record", str(run.path), "--format", "html", "--policy", "leader"]) == 0
        return capsys.readouterr().out

    assert re.match(r"leader +return +\d+\.\d\d, succeeded after 1 step\n", said(franka))
    assert ", ended at its time limit after 24 steps\n" in said(hopper)
    monkeypatch.setattr("echelon.viewing.recorder.MAX_RECORDING_S", 0.1)
    assert ", cut after 0.1 s, 5 steps\n" in said(hopper)


def test_a_film_leaves_the_replay_alone(hopper: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A film of one policy must not take the others out of the report; without a replay it leaves its own."""
    drawn: list[int] = []
    monkeypatch.setattr("echelon.commands.record.require_package", lambda *package: None)
    monkeypatch.setattr("echelon.viewing.video.draw", lambda tapes, out, format: drawn.append(len(tapes)))
    assert main(["record", str(hopper.path), "--format", "html"]) == 0
    film = ["record", str(hopper.path), "--policy", "1", "--out", str(tmp_path / "film.gif")]
    assert main(film) == 0
    assert [episode.policy for episode in read_replay(replay_path(hopper)).episodes] == [0, 1, 2]
    replay_path(hopper).unlink()
    assert main(film) == 0
    assert [episode.policy for episode in read_replay(replay_path(hopper)).episodes] == [1]
    assert drawn == [1, 1]


MISTAKES = {
    "play": "play needs a run folder first",
    "play RUN --policy all": "--policy is leader or a number from 0 to 2, not all",
    "play RUN --policy 9": "--policy is leader or a number from 0 to 2, not 9",
    "play RUN --port 70000": "--port must be at most 65,535, not 70000",
    "play RUN --seed -2": "--seed must be at least 0, not -2",
    "record": "record needs a run folder first",
    "record /nowhere": "there is no run folder /nowhere",
    "record RUN --policy 7": "--policy is leader, all or a number from 0 to 2, not 7",
    "record RUN --seed -1": "--seed must be at least 0, not -1",
    "record RUN --format avi": "--format takes one of auto, mp4, gif, html, not 'avi'",
    "record RUN --out film.avi": "--out must end in .mp4, .gif or .html, or give --format; film.avi does not",
    "record RUN --out film.gif --format html": "--out ends in .gif but --format is html; leave out one of them",
    "record RUN --out film.gif --checkpoint all": "a film shows one checkpoint; add --format html",
    "record RUN --out /proc/none/page.html": "/proc/none",
    "record RUN --out /proc/page.html": "/proc/page.html cannot be written: ",
}


def test_a_mistake_is_one_sentence(
    hopper: RunFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, expected in MISTAKES.items():
        code = main([str(hopper.path) if word == "RUN" else word for word in words.split()])
        said = capsys.readouterr().err
        assert (code, expected in said, said.count("\n")) == (2, True, 1), (words, said)
    for format, missing in (("mp4", "imageio_ffmpeg"), ("mp4", "PIL"), ("gif", "PIL")):
        monkeypatch.setattr("echelon.errors.find_spec", lambda name, missing=missing: None if name == missing else True)
        assert main(["record", str(hopper.path), "--format", format]) == 2
        said = capsys.readouterr().err
        assert f"{missing}, which is not installed; pip install -e '.[video]' in Echelon's clone\n" in said


def test_a_replay_shows_itself_in_a_notebook(hopper: RunFolder, tmp_path: Path) -> None:
    shown = echelon.replay(hopper.path, "leader")
    frame = re.fullmatch(r'<iframe srcdoc="([^"]*)" [^<>]*></iframe>', shown._repr_html_())
    assert frame is not None
    assert html.unescape(frame[1]) == replay_page(shown.replay)
    assert re.fullmatch(r"replay of hopper after iteration 1: leader -?[\d.]+", repr(shown))
    shown.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text() == replay_page(shown.replay)
    with pytest.raises(UserError, match="there is no run folder"):
        echelon.replay(tmp_path / "nowhere")


def test_the_ending_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _format(Record("run", out="film.GIF"), ("PIL",)) == "gif"
    assert _format(Record("run", out="page.html"), ("PIL",)) == "html"
    assert _format(Record("run", out="film.bin", format="mp4"), ("PIL",)) == "mp4"
    for installed, format in ((None, "html"), (True, "mp4")):
        monkeypatch.setattr("echelon.errors.find_spec", lambda name, found=installed: found)
        assert _format(Record("run"), ("PIL",)) == format
