"""Every command on the pages is one that `echelon` understands; every flag and file that they name exists."""

import re
import shlex
from pathlib import Path

import pytest

from echelon import algorithms, tasks
from echelon.cli import COMMANDS
from echelon.commands.command import find, parse
from echelon.commands.compare import Compare
from echelon.commands.train import OnTask, configure
from echelon.console.flags import flags_of

ROOT = Path(__file__).parents[2]
FOLDERS = (".", "docs", "docs/tasks")
PAGES = [path.relative_to(ROOT) for part in FOLDERS for path in sorted((ROOT / part).glob("*.md"))]
PAGES.remove(Path("SECURITY.md"))  # which shortens commands
NAMED_FILE = r"(?<![\w/.])((?:[a-z]\w*/)+[\w.]+\.(?:py|sbatch|yaml|xml|json))\b"
STANDS_FOR = {"TASK": "Hopper", "NAME": "Hopper", "RUN": "runs/a", "FOLDER": "runs/a", "FILE": "a.npz"}
OTHERS = {  # flags of other programs, tasks and algorithms, by the page that names them
    "docs/scale.md": "--nproc-per-node --nnodes --max-restarts --rdzv-id --rdzv-backend --rdzv-endpoint --rdzv-conf "
    "--signal --time --folder",
    "docs/coming-from.md": "--gamma",
    "README.md": "--logdir --nproc-per-node",
    "docs/viewing.md": "--logdir",
    "docs/flock.md": "--formation.ess",
    "docs/tutorial.md": "--env.effort-cost",
}


def commands(page: Path) -> list[list[str]]:
    """The words after each `echelon` in a page's code, `RUN` and such filled in; shortened commands are left out."""
    text = (ROOT / page).read_text().replace("\\\n", " ")
    blocks = re.findall(r"```(?:sh)?\n(.*?)```", text, re.DOTALL) + re.findall(
        r"^    (echelon .*)$", text, re.MULTILINE
    )
    mentioned = [" ".join(each.split()) for each in re.findall(r"`(echelon [\w-]+ [^`]+)`", text)]
    lines = [line.partition(" #")[0] for block in blocks for line in block.splitlines()] + mentioned
    found = [shlex.split(match[1]) for line in lines if (match := re.search(r"(?:^|\$ |-m )echelon (.*)", line))]
    return [[STANDS_FOR.get(word, word) for word in words] for words in found if not {"...", "[flags"} & {*words}]


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_commands_are_understood(page: Path) -> None:
    for name, *words in commands(page):
        if not words or {"--help", "ring", "ReachArm"} & {*words}:  # a task and an algorithm that pages make
            continue
        command = parse(find(name), name, words)
        if isinstance(command, OnTask) and command.task and ":" not in command.task:
            configure(command.task, command.train_flags, command=name)
        elif isinstance(command, Compare) and not any(":" in task for task in command.tasks):
            assert list(command.configs())  # made one after another, as they are asked for


def test_every_command_is_on_a_page() -> None:
    found = [words[0] for page in PAGES for words in commands(page)]
    assert len(found) > 80
    assert {*COMMANDS} - {*found} == {"doctor", "variants"}  # which take no words


def test_flags_exist() -> None:
    known = {"--help"} | {flag for name in COMMANDS for flag in flags_of(find(name))}
    for task in tasks.names():
        for algorithm in algorithms.names():
            known |= {*flags_of(algorithms.with_algorithm(tasks.preset(task), algorithm))}
    unknown = {
        f"{page}: {flag}"
        for page in PAGES
        for flag in re.findall(r"(?<![\w-])--[a-z][\w.-]*\w", (ROOT / page).read_text())
        if flag not in known and flag != "--env.NAME" and flag not in OTHERS.get(str(page), "").split()
    }
    assert sorted(unknown) == []


def test_files_exist() -> None:
    """Files that pages name in code, from the repository's root or the package's."""
    places = (ROOT, ROOT / "src" / "echelon", ROOT / "src")
    missing = {
        f"{page}: {name}"
        for page in PAGES
        for name in re.findall(NAMED_FILE, (ROOT / page).read_text())
        if not any((place / name).exists() for place in places)
    }
    assert sorted(missing) == []
