"""Trainings that stop by themselves: flags of their own and of the training, and what is kept."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import train_until
from command import command

from echelon.errors import UserError


def run(monkeypatch: pytest.MonkeyPatch, folder: Path, *words: str, flags: Sequence[str] = ()) -> None:
    own = ["CartpoleSwingup", "--out", str(folder / "kept"), "--runs", str(folder / "runs"), *words]
    flags = ["--device", "cpu", *(flags if "--num-envs" in flags else ["--num-envs", "48", *flags])]
    monkeypatch.setattr("sys.argv", ["train_until.py", *own, "--", *flags])
    train_until.main()


def kept(folder: Path, name: str = "CartpoleSwingup") -> list[dict[str, str]]:
    with (folder / "kept" / name / "metrics.csv").open() as file:
        return list(csv.DictReader(file))


def test_flags_after_two_dashes_are_the_trainings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own = ["--name", "short", "--seed", "3", "--algo", "ppo", "--until", "iteration", ">=", "2"]
    run(monkeypatch, tmp_path, *own, flags=["--update.learning-rate", "0.002"])
    config = json.loads((tmp_path / "kept" / "short" / "config.json").read_text())["config"]
    assert (config["task"], config["algo"], config["seed"], config["num_envs"]) == ("CartpoleSwingup", "ppo", 3, 48)
    assert config["update"]["learning_rate"] == 0.002
    assert [row["iteration"] for row in kept(tmp_path, "short")] == ["1", "2"]  # every tenth, and the last


def test_a_mistake_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as stopped:
        command(lambda: run(monkeypatch, tmp_path, flags=["--num-envs", "0"]))
    assert isinstance(stopped.value.code, str)
    assert stopped.value.code.startswith("error: ")
    assert "\n" not in stopped.value.code


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("return/leader", "==", "1"), "--until return/leader takes >= or <=, in quotes, not '=='"),
        (("iteration", ">=", "two"), "--until iteration >= takes a number, not 'two'"),
        (("iteration", ">=", "nan"), "--until iteration >= takes a number, not 'nan'"),  # would never be reached
    ],
)
def test_an_aim_that_cannot_be_compared_is_refused_before_anything_is_built(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: tuple[str, ...], sentence: str
) -> None:
    with pytest.raises(UserError) as refused:
        run(monkeypatch, tmp_path, "--until", *words)
    assert str(refused.value) == sentence
    assert not list(tmp_path.iterdir())


def test_a_misspelt_metric_is_noticed_at_the_first_update(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^--until retrun/leader is no metric of this run; did you mean return/leader"):
        run(monkeypatch, tmp_path, "--algo", "ppo", "--until", "retrun/leader", ">=", "1")
    lines = (tmp_path / "runs" / "CartpoleSwingup" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["iteration"] for line in lines] == [1]


def test_a_metric_may_be_nan_at_first_and_be_left_out_later(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[int] = []
    monkeypatch.setattr(train_until.signal, "raise_signal", stopped.append)
    view = train_until.Deadline(1, train_until.Aim("ess", ">=", 0.5))
    for value in ({"ess": float("nan")}, {}, {"ess": 0.4}):
        view.update({"wall_s": 1.0} | value)
    assert not stopped
    view.update({"wall_s": 1.0, "ess": 0.5})
    assert stopped == [train_until.signal.SIGINT]


def test_a_resumed_run_knows_the_metrics_it_had(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Diagnostics are measured in its first iteration, and not in those after which it goes on."""
    run(monkeypatch, tmp_path, "--until", "iteration", ">=", "1", flags=["--iterations", "3"])
    run(monkeypatch, tmp_path, "--until", "ess", ">=", "1e9", flags=["--iterations", "3"])
    assert [(row["iteration"], row["ess"] != "") for row in kept(tmp_path)] == [("1", True), ("3", False)]
