"""What is meant for others, reports, replays and exported policies, names no place, user or host of this machine."""

import base64
import getpass
import gzip
import json
import platform
import re
import socket
from pathlib import Path

import pytest
from tiny import tiny

import echelon
from echelon.cli import main
from echelon.console.view import NullView
from echelon.training.loop import train

WHO, WHERE = "ada-lovelace-1815", "analytical-engine-7"


def test_nothing_that_is_published_says_where_it_was_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / WHO
    for name, value in (("HOME", str(home)), ("USER", WHO), ("LOGNAME", WHO), ("HOSTNAME", WHERE)):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(socket, "gethostname", lambda: WHERE)
    monkeypatch.setattr(platform, "node", lambda: WHERE)
    first = train(tiny("CartpoleSwingup", home / "runs" / "first"), NullView()).path
    run = train(tiny("CartpoleSwingup", home / "runs" / "run", start_from=str(first), seed=1), NullView()).path
    assert getpass.getuser() == WHO
    (home / "runs" / "broken").mkdir()
    (home / "runs" / "broken" / "config.json").symlink_to(first / "config.json")
    for words in (
        ["record", str(run), "--format", "html"],
        ["export", str(run), "--format", "onnx", "--out", f"{home}/out/policy.onnx"],
        ["export", str(run), "--format", "numpy", "--out", f"{home}/out/policy.npz"],
    ):
        assert main(words) == 0
    replay = json.loads((run / "replay" / "replay.json").read_text())
    (first / "replay").mkdir()
    (first / "replay" / "replay.json").write_text("{")  # which a note tells of
    assert main(["report", str(home / "runs"), "--out", f"{home}/out/report"]) == 0
    page = (home / "out" / "report" / "index.html").read_text()
    (packed,) = re.findall(r"H4sI[\w+/=]+", page)
    inside = gzip.decompress(base64.b64decode(packed))
    assert b"replay" in inside
    assert b"broken" in inside
    published = {"data of the page": inside, "replay": json.dumps(replay).encode()}
    for file in (*(run / "replay").iterdir(), *(home / "out").rglob("*.*")):
        published[file.name] = file.read_bytes()
    assert {"policy.onnx", "policy.npz", "all.html", "runs.csv", "index.html"} <= published.keys()
    for word in (WHO, WHERE, str(tmp_path), str(Path(echelon.__file__).parents[1])):
        assert [name for name, content in published.items() if word.encode() in content] == []
    for policy in (published["policy.onnx"], published["policy.npz"].replace(b"\0", b"")):
        assert b".py" not in policy
        assert b"site-packages" not in policy
