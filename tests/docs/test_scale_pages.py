"""The pages and files about many machines name commands, flags and files that exist."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from echelon.commands.command import parse
from echelon.commands.compare import Compare, make_jobs
from echelon.commands.train import configure

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "docs" / "scale" / f"{name}.md" for name in ("machines", "ray")]
FILES = sorted((ROOT / "examples" / "scale").iterdir())


def commands(text: str, name: str) -> list[list[str]]:
    """The words after every `echelon NAME` in a page or a file, without comments and what belongs to the shell."""
    text = text.replace("\\\n", " ").replace(">-", "")
    found = []
    for line in re.findall(rf"echelon {name} ([^\n`#&]*(?:\n {{10,}}--[^\n`#&]*)*)", text):
        words = shlex.split(re.sub(r"\$\{?\w+[^}\"\s]*\}?", "1", line.replace("\n", " ")))
        if words[:1] not in ([], ["..."], ["1"], ["TASK"], ["@"], ["$@"]):
            found.append(words)
    return found


def trained(text: str) -> list[list[str]]:
    return [words for words in commands(text, "train") if words[1:2] != ["..."]]


@pytest.mark.parametrize("path", [*PAGES, *FILES], ids=lambda path: path.name)
def test_commands_are_understood(path: Path, tmp_path: Path) -> None:
    text = path.read_text()
    for task, *flags in trained(text):
        configure(task, flags)
    for words in commands(text, "compare"):
        if "--on" in words:
            place = words.index("--on")
            assert words[place + 1].startswith("ray")
            words = [*words[:place], *words[place + 2 :]]
        assert make_jobs(parse(Compare, "compare", [*words, "--out", str(tmp_path)]))


def test_there_are_commands_to_look_at() -> None:
    texts = [path.read_text() for path in [*PAGES, *FILES]]
    assert sum(len(trained(text)) for text in texts) >= 5
    assert sum(len(commands(text, "compare")) for text in texts) >= 5


@pytest.mark.parametrize("path", [path for path in FILES if path.suffix == ".yaml"], ids=lambda path: path.name)
def test_files_are_yaml(path: Path) -> None:
    assert all(isinstance(document, dict) for document in yaml.safe_load_all(path.read_text()))


@pytest.mark.parametrize("path", [path for path in FILES if path.suffix == ".sbatch"], ids=lambda path: path.name)
def test_scripts_are_bash(path: Path) -> None:
    subprocess.run(["bash", "-n", str(path)], check=True)
    assert "scontrol requeue" in path.read_text()


def test_files_that_pages_name_exist() -> None:
    named = {name for page in PAGES for name in re.findall(r"examples/scale/[\w.]+", page.read_text())}
    assert named == {f"examples/scale/{path.name}" for path in FILES}
