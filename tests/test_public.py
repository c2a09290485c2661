"""What can be imported from `echelon`, the module as a command, and what is meant for others: reports, replays and
exported policies name no place, user or host of this machine."""

import base64
import getpass
import gzip
import json
import platform
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tiny import tiny

import echelon
from echelon import make
from echelon.cli import main
from echelon.console.view import NullView
from echelon.errors import UserError
from echelon.training.loop import train

DOCS = Path(__file__).parent.parent / "docs"


def test_everything_public_can_be_imported_and_is_listed_and_the_module_is_the_command() -> None:
    text, reference = (DOCS / "api.md").read_text(), (DOCS / "reference.md").read_text().split()
    for name in echelon.__all__:
        assert getattr(echelon, name) is not None
        assert f"`{name}" in text, f"{name} is not in docs/api.md"
        assert any(word.endswith(f".{name}") for word in reference), f"{name} is not in docs/reference.md"
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        _ = echelon.trian  # pyright: ignore
    done = subprocess.run([sys.executable, "-m", "echelon", "trian"], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == "echelon: trian is not a command of echelon; did you mean train?\n"


def test_settings_as_the_command_has_them() -> None:
    best = echelon.configure("AllegroHand", ["--env-steps", "5e7"])
    assert (best.method, best.env_steps, best.update.kl_rows) == ("ppo_x4", 50_000_000, "own")
    assert echelon.configure("AllegroHand", variants=("sapg",)).method == "sapg"
    assert echelon.preset("AllegroHand").method == "cpo"
    told = echelon.configure("AllegroHand", "--env-steps 5e7 --num-envs 96", "sapg")
    assert told == echelon.configure("AllegroHand", ["--env-steps", 5e7, "--num-envs", 96], ["sapg"])
    assert (told.method, told.env_steps, told.num_envs) == ("sapg", 50_000_000, 96)
    with pytest.raises(UserError, match="AllegroHnd is not a task; did you mean AllegroHand"):
        echelon.configure("AllegroHnd")


def test_environments_by_name() -> None:
    env = make("CartpoleSwingup", num_envs=3, device="cpu", episode_length=7)
    assert (env.num_envs, env.episode_length, env.reset()["policy"].shape) == (3, 7, (3, 5))
    least = make("envs.least:make", num_envs=2, device="cpu", bonus=2.5)
    assert least.bonus == 2.5
    assert make("envs.own_task:Pole", 2, "cpu", episode_length=9).episode_length == 9
    with pytest.raises(UserError, match=r"env\.lenght is not a setting"):
        make("CartpoleSwingup", device="cpu", lenght=3)
    with pytest.raises(UserError, match="num_envs takes a whole number, not '3'"):
        make("CartpoleSwingup", num_envs="3")  # pyright: ignore[reportArgumentType]


def test_what_people_pass_instead(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A task's name instead of settings, a run's path instead of its folder, one callback or variant alone."""
    for wrong in ("Hopper", {"task": "Hopper"}):
        with pytest.raises(UserError, match=r'train takes settings, as in train\(preset\("Hopper"\)\), not '):
            echelon.train(wrong)  # pyright: ignore
    config = tiny("Hopper", tmp_path / "run", "ppo")
    echelon.train(config, callbacks=lambda metrics: None)
    assert "Hopper, ppo, 1 policy, 6 environments, cpu, iterations 0 to 2" in capsys.readouterr().out
    assert echelon.read_metrics(str(tmp_path / "run"))
    assert len(echelon.evaluate(str(tmp_path / "run"), num_envs=2, device="cpu").scores) == 2
    assert echelon.apply_variants(config, "no_pull").variant == ("no_pull",)
    with pytest.raises(ZeroDivisionError):
        echelon.train(tiny("Hopper", tmp_path / "failed"), make_env=lambda num_envs, device, seed: 1 / 0)  # pyright: ignore
    assert not (tmp_path / "failed").exists()


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
