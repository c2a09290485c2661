"""`echelon record` from the command line, and a replay in a notebook's cell."""

import html
import re
from dataclasses import replace
from pathlib import Path

import pytest

import echelon
from echelon.cli import main
from echelon.commands import record as command
from echelon.errors import UserError
from echelon.runs.folder import RunFolder
from echelon.runs.replays import read_replay, replay_path
from echelon.viewing.page import replay_page
from echelon.viewing.recorder import record_replay


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
    assert ([episode.policy for episode in replay.episodes], replay.seed) == ([1], 4)
    # docs/viewing.md offers `record_replay`; the command keeps the tapes as well, so it cannot call it.
    written = replay_path(hopper).read_bytes()
    replay_path(hopper).unlink()
    record_replay(hopper, "1", seed=4)
    assert replay_path(hopper).read_bytes() == written


def test_a_success_is_not_called_a_failure(franka: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["record", str(franka.path), "--format", "html", "--policy", "leader"]) == 0
    assert re.match(r"leader +return +\d+\.\d\d, succeeded after 1 step\n", capsys.readouterr().out)


def test_a_recording_that_was_cut_says_so(
    hopper: RunFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its episode lasts 24 steps of 0.02 s; the minute is shortened to 0.1 s."""
    words = ["record", str(hopper.path), "--format", "html", "--policy", "leader"]
    assert main(words) == 0
    assert ", ended at its time limit after 24 steps\n" in capsys.readouterr().out
    monkeypatch.setattr("echelon.viewing.recorder.MAX_RECORDING_S", 0.1)
    assert main(words) == 0
    assert ", cut after 0.1 s, 5 steps\n" in capsys.readouterr().out


def test_a_film_leaves_the_replay_alone(hopper: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A film of one policy must not take the others out of the report; without a replay it leaves its own."""
    drawn: list[int] = []
    monkeypatch.setattr("echelon.viewing.video.require_packages", lambda format: None)
    monkeypatch.setattr("echelon.viewing.video.draw", lambda tapes, out, format: drawn.append(len(tapes)))
    assert main(["record", str(hopper.path), "--format", "html"]) == 0
    film = ["record", str(hopper.path), "--policy", "1", "--out", str(tmp_path / "film.gif")]
    assert main(film) == 0
    assert [episode.policy for episode in read_replay(replay_path(hopper)).episodes] == [0, 1, 2]
    replay_path(hopper).unlink()
    assert main(film) == 0
    assert [episode.policy for episode in read_replay(replay_path(hopper)).episodes] == [1]
    assert drawn == [1, 1]


def test_a_runs_name_cannot_break_the_page(hopper: RunFolder) -> None:
    replay = replace(read_replay(replay_path(hopper)), run="</script><script>alert(1)</script>", task="<b>")
    page = replay_page(replay)
    assert page.count("</script>") == 2
    assert "<b>" not in page.replace("<body>", "").split("<script>")[0]


MISTAKES = {
    "play": "play needs a run folder first",
    "play RUN --policy all": "play shows one policy at a time",
    "play RUN --policy 9": "--policy is leader, all or a number from 0 to 2, not 9",
    "play RUN --port 70000": "--port must be at most 65,535, not 70000",
    "play RUN --seed -2": "--seed must be at least 0, not -2",
    "record": "record needs a run folder first",
    "record /nowhere": "there is no run folder /nowhere",
    "record RUN --policy 7": "--policy is leader, all or a number from 0 to 2, not 7",
    "record RUN --seed -1": "--seed must be at least 0, not -1",
    "record RUN --format avi": "--format takes one of auto, mp4, gif, html, not 'avi'",
    "record RUN --out film.avi": "--out must end in .mp4, .gif or .html, or give --format; film.avi does not",
    "record RUN --out film.gif --format html": "--out ends in .gif but --format is html; leave out one of them",
    "record RUN --out /proc/none/page.html": "/proc/none",
    "record RUN --out /proc/page.html": "/proc/page.html cannot be written: ",
}


def test_a_mistake_is_one_sentence(hopper: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    said = {}
    for words in MISTAKES:
        code = main([str(hopper.path) if word == "RUN" else word for word in words.split()])
        said[words] = code, capsys.readouterr().err
    assert [
        (words, code, text)
        for words, (code, text) in said.items()
        if code != 2 or MISTAKES[words] not in text or text.count("\n") != 1
    ] == []


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


def test_the_ending_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def chosen(**flags: str) -> str:
        return command._format(command.Record("run", **flags))  # pyright: ignore[reportArgumentType]

    assert chosen(out="film.GIF") == "gif"
    assert chosen(out="page.html") == "html"
    assert chosen(out="film.bin", format="mp4") == "mp4"
    monkeypatch.setattr("echelon.errors.find_spec", lambda name: None)
    assert chosen() == "html"
    monkeypatch.setattr("echelon.errors.find_spec", lambda name: True)
    assert chosen() == "mp4"
