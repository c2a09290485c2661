"""What `echelon play` and `echelon record` answer to a mistake: one sentence."""

import pytest

from echelon.cli import main
from echelon.runs.folder import RunFolder


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("play", "play needs a run folder first"),
        ("play RUN --policy all", "play shows one policy at a time"),
        ("play RUN --policy 9", "--policy is leader, all or a number from 0 to 2, not 9"),
        ("play RUN --port 70000", "--port must be from 0 to 65535, not 70000"),
        ("play RUN --seed -2", "--seed must be at least 0, not -2"),
        ("record", "record needs a run folder first"),
        ("record /nowhere", "there is no run folder /nowhere"),
        ("record RUN --policy 7", "--policy is leader, all or a number from 0 to 2, not 7"),
        ("record RUN --seed -1", "--seed must be at least 0, not -1"),
        ("record RUN --format avi", "--format takes one of auto, mp4, gif, html, not 'avi'"),
        ("record RUN --out film.avi", "--out must end in .mp4, .gif or .html, or give --format; film.avi does not"),
        ("record RUN --out film.gif --format html", "--out ends in .gif but --format is html; leave out one of them"),
        ("record RUN --out /proc/none/page.html", "/proc/none"),
        ("record RUN --out /proc/page.html", "/proc/page.html cannot be written: "),
    ],
)
def test_mistakes_are_one_sentence(
    hopper: RunFolder, words: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(hopper.path) if word == "RUN" else word for word in words.split()]) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1
