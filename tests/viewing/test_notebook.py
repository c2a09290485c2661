"""A replay in a notebook's cell."""

import html
import re
from pathlib import Path

import pytest
from tiny import tiny

from echelon import NullView, replay, train
from echelon.errors import UserError
from echelon.viewing.page import replay_page


def test_a_replay_shows_itself(tmp_path: Path) -> None:
    run = train(tiny("Hopper", tmp_path / "run", env={"episode_length": 6}), NullView())
    shown = replay(run.path, "leader")
    frame = re.fullmatch(r'<iframe srcdoc="([^"]*)" [^<>]*></iframe>', shown._repr_html_())
    assert frame is not None
    assert html.unescape(frame[1]) == replay_page(shown.replay)
    assert re.fullmatch(r"replay of run after iteration 2: leader -?[\d.]+", repr(shown))
    shown.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text() == replay_page(shown.replay)
    with pytest.raises(UserError, match="there is no run folder"):
        replay(tmp_path / "nowhere")
