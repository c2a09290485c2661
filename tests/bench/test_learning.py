"""Trainings that stop by themselves: flags of their own and of the training, and what is kept."""

import csv
import json
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from echelon.errors import UserError

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def learning(monkeypatch: pytest.MonkeyPatch) -> Any:
    """By its path: there is a folder of tests of that name."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    spec = spec_from_file_location("learning_benchmark", BENCHMARKS / "learning.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_flags_after_two_dashes_are_the_trainings(
    learning: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own = ["CartpoleSwingup", "--name", "short", "--out", str(tmp_path / "kept"), "--runs", str(tmp_path / "runs")]
    own += ["--seed", "3", "--algo", "ppo", "--until", "iteration", ">=", "2"]
    flags = ["--device", "cpu", "--num-envs", "48", "--update.learning-rate", "0.002"]
    monkeypatch.setattr("sys.argv", ["learning.py", *own, "--", *flags])
    learning.main()
    config = json.loads((tmp_path / "kept" / "short" / "config.json").read_text())["config"]
    assert (config["task"], config["algo"], config["seed"], config["num_envs"]) == ("CartpoleSwingup", "ppo", 3, 48)
    assert config["update"]["learning_rate"] == 0.002
    with (tmp_path / "kept" / "short" / "metrics.csv").open() as file:
        assert [row["iteration"] for row in csv.DictReader(file)] == ["1", "2"]  # every tenth, and the last


def test_a_mistake_is_one_sentence(learning: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from command import command  # pyright: ignore[reportMissingImports]

    monkeypatch.setattr("sys.argv", ["learning.py", "CartpoleSwingup", "--", "--num-envs", "0"])
    with pytest.raises(UserError):
        learning.main()
    with pytest.raises(SystemExit) as stopped:
        command(learning.main)
    assert isinstance(stopped.value.code, str)
    assert stopped.value.code.startswith("error: ")
    assert "\n" not in stopped.value.code
