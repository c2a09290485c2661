"""The tutorial as it is written: its code is what `new-task` writes, and its commands work."""

import re
import shlex
from pathlib import Path

import pytest

from echelon import cli

PAGE = (Path(__file__).parents[2] / "docs" / "tutorial.md").read_text()
BUDGET = ["--iterations", "2", "--num-envs", "24", "--device", "cpu"]
EXTRA = {
    "train": BUDGET,
    "compare": [*BUDGET, "--seeds", "1", "--algos", "ppo"],
    "evaluate": ["--num-envs", "2", "--device", "cpu"],
    "env": BUDGET[2:],
}


def test_its_commands_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    """Word for word, but for a budget of two iterations, and one run of a comparison."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    blocks = re.findall(r"```sh\n(.*?)```", PAGE, flags=re.DOTALL)
    lines = [shlex.split(line.partition("#")[0]) for block in blocks for line in block.splitlines()]
    commands = [words[1:] for words in lines if words[0] == "echelon"]
    assert [words[0] for words in commands] == [
        *("new-task", "env", "train", "evaluate", "record", "compare", "export"),
    ]
    for words in commands:
        assert cli.main([*words, *EXTRA.get(words[0], [])]) == 0, words
    code = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    assert code == [(tmp_path / "reach_arm" / name).read_text() for name in ("task.py", "settings.py")]
    assert sum(len(block.splitlines()) for block in code) < 70
    assert (tmp_path / "numpy_policy.py").exists()


def test_mistakes_of_new_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["new-task", "Arm", "robots"]) == 0
    assert "Next, in robots:" in capsys.readouterr().out
    for words, sentence in (
        (["reach arm"], "a task is named like a class"),
        (["Arm", "robots"], "robots/arm exists already"),
        (["Arm", "a", "b"], "'b' is neither a flag nor the value of one"),
    ):
        assert cli.main(["new-task", *words]) == 2
        assert sentence in capsys.readouterr().err
