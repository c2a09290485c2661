"""Trainings that stop by themselves: flags of their own and of the training, and what is kept."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import train_until
from command import command


def run(monkeypatch: pytest.MonkeyPatch, folder: Path, *words: str, flags: Sequence[str] = ()) -> None:
    own = ["CartpoleSwingup", "--out", str(folder / "kept"), "--runs", str(folder / "runs"), *words]
    flags = ["--device", "cpu", *(flags if "--num-envs" in flags else ["--num-envs", "48", *flags])]
    monkeypatch.setattr("sys.argv", ["train_until.py", *own, "--", *flags])
    train_until.main()


def kept(folder: Path, name: str = "CartpoleSwingup") -> list[dict[str, str]]:
    with (folder / "kept" / name / "metrics.csv").open() as file:
        return list(csv.DictReader(file))


def test_flags_and_ends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own = ["--name", "short", "--seed", "3", "--algo", "ppo", "--until", "iteration", ">=", "2"]
    run(monkeypatch, tmp_path, *own, flags=["--update.learning-rate", "0.002"])
    config = json.loads((tmp_path / "kept" / "short" / "config.json").read_text())["config"]
    assert (config["task"], config["algo"], config["seed"], config["num_envs"]) == ("CartpoleSwingup", "ppo", 3, 48)
    assert config["update"]["learning_rate"] == 0.002
    assert [row["iteration"] for row in kept(tmp_path, "short")] == ["1", "2"]  # every tenth, and the last
    run(monkeypatch, tmp_path, "--algo", "ppo", "--minutes", "1e-9")  # time is up after one iteration
    assert [row["iteration"] for row in kept(tmp_path)] == ["1"]
    with pytest.raises(SystemExit) as stopped:
        command(lambda: run(monkeypatch, tmp_path, flags=["--num-envs", "0"]))
    assert isinstance(stopped.value.code, str)
    assert stopped.value.code.startswith("error: ")
    assert "\n" not in stopped.value.code
