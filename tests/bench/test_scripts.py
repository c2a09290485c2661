"""Two source trees in turn, trainings that stop by themselves, and a page that names every script."""

import csv
import json
import statistics
from pathlib import Path

import pytest
import train_until
from before_after import compare, find, table
from command import command

ROOT = Path(__file__).parents[2]
A = [{"iteration": [10.0, 12.0, 11.0], "collect": [4.0, 4.0, 4.0]}, {"iteration": [20.0, 22.0, 24.0], "collect": [8.0]}]
B = [
    {"iteration": [11.0, 13.2, 12.1], "collect": [2.0, 2.0, 2.0]},
    {"iteration": [33.0], "collect": [4.0], "new": [1.0]},
]


def test_ratios_are_of_turns_beside_each_other() -> None:
    # Medians of the turns: A 11 and 22, B 12.1 and 33. The second turn met a busier machine, on both sides.
    before, after, ratios = compare(A, B)
    assert (before, after) == (16.5, pytest.approx(22.55))
    assert ratios == [pytest.approx(1.1), pytest.approx(1.5)]
    line = table([{"case": "Task:ppo", "a": A, "b": B}]).splitlines()[-1]
    assert line == "| Task:ppo | 16.50 | 22.55 | 1.300 | 1.100 to 1.500 | collect 0.500 |"


def test_the_first_place_that_a_tree_has_is_taken() -> None:
    assert find("no_such_module:median", "statistics:no_such_name", "statistics:median") is statistics.median
    with pytest.raises(ImportError, match="tell `build`"):
        find("no_such_module:median")


def test_trainings_take_flags_and_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def run(name: str, *words: str) -> list[str]:
        """The iterations that are kept of a training: every tenth, and the last."""
        own = ["CartpoleSwingup", "--out", str(tmp_path / "kept"), "--runs", str(tmp_path / "runs"), "--name", name]
        monkeypatch.setattr("sys.argv", ["train_until.py", *own, *words, "--device", "cpu"])
        train_until.main()
        with (tmp_path / "kept" / name / "metrics.csv").open() as file:
            return [row["iteration"] for row in csv.DictReader(file)]

    own = ["--seed", "3", "--algo", "ppo", "--until", "iteration", ">=", "2"]
    assert run("short", *own, "--", "--num-envs", "48", "--update.learning-rate", "0.002") == ["1", "2"]
    config = json.loads((tmp_path / "kept" / "short" / "config.json").read_text())["config"]
    assert (config["task"], config["algo"], config["seed"], config["num_envs"]) == ("CartpoleSwingup", "ppo", 3, 48)
    assert config["update"]["learning_rate"] == 0.002
    assert run("timed", "--algo", "ppo", "--minutes", "1e-9", "--", "--num-envs", "48") == ["1"]  # its time is up
    with pytest.raises(SystemExit) as stopped:
        command(lambda: run("bad", "--", "--num-envs", "0"))
    assert isinstance(stopped.value.code, str)
    assert stopped.value.code.startswith("error: ")
    assert "\n" not in stopped.value.code


def test_every_script_is_named_on_a_page() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "results").rglob("README.md")]
    text = "\n".join(page.read_text() for page in pages)
    scripts = [path for path in (ROOT / "benchmarks").rglob("*.py") if "__main__" in path.read_text()]
    scripts += (ROOT / "results").rglob("run.py")
    assert [str(path) for path in scripts if str(path.relative_to(ROOT)) not in text] == []
