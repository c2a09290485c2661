"""The tutorial and the algorithm of one's own work as they are written."""

import re
import shlex
from pathlib import Path

import pytest

from echelon import cli
from echelon.algorithms import REGISTERED
from echelon.runs.folder import RunFolder
from echelon.runs.metrics import read_metrics

DOCS = Path(__file__).parents[2] / "docs"
TUTORIAL, ALGORITHM = (DOCS / "tutorial.md").read_text(), (DOCS / "your-algorithm.md").read_text()
BUDGET = ["--iterations", "2", "--num-envs", "24", "--device", "cpu"]
EXTRA = {
    "train": BUDGET,
    "compare": [*BUDGET, "--seeds", "1", "--algos", "ppo"],
    "evaluate": ["--num-envs", "2", "--device", "cpu"],
    "env": BUDGET[2:],
}


def test_the_commands_of_the_tutorial_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Word for word, but for a budget of two iterations, and one run of a comparison."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    blocks = re.findall(r"```sh\n(.*?)```", TUTORIAL, flags=re.DOTALL)
    lines = [shlex.split(line.partition("#")[0]) for block in blocks for line in block.splitlines()]
    commands = [words[1:] for words in lines if words[0] == "echelon"]
    assert [words[0] for words in commands] == [
        *("new-task", "env", "train", "evaluate", "record", "compare", "export"),
    ]
    for words in commands:
        assert cli.main([*words, *EXTRA.get(words[0], [])]) == 0, words
    code = re.findall(r"```python\n(.*?)```", TUTORIAL, flags=re.DOTALL)
    assert code == [(tmp_path / "reach_arm" / name).read_text() for name in ("task.py", "settings.py")]
    assert sum(len(block.splitlines()) for block in code) < 70
    assert (tmp_path / "numpy_policy.py").exists()


def test_new_task_overwrites_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["new-task", "Arm", "robots"]) == 0
    assert "Next, in robots:" in capsys.readouterr().out
    assert cli.main(["new-task", "Arm", "robots"]) == 2
    assert "robots/arm exists already" in capsys.readouterr().err


def test_the_algorithm_on_its_page_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Word for word, but for a budget of two iterations. Every policy reads its neighbour's block and its own."""
    (example,) = re.findall(r"```python\n(.*?)```", ALGORITHM, flags=re.DOTALL)
    assert "env_steps=500_000" in example
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("echelon.algorithms.REGISTERED", known := dict(REGISTERED))
    exec(example.replace("env_steps=500_000", 'env_steps=8_192, device="cpu"'), {})
    assert known.keys() - REGISTERED.keys() == {"ring"}
    lines = read_metrics(RunFolder.open(tmp_path / "runs" / "ring"))
    assert len(lines) == 2
    for line in lines:
        assert line["loss/actor"] == pytest.approx(line["loss/own"] + line["loss/neighbour"], abs=1e-5)
        assert line["effort"] < 0 < line["clip_fraction/neighbour"]
