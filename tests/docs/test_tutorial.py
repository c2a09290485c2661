"""What the pages show works as it is written, and their links lead somewhere."""

import re
import shlex
from pathlib import Path

import pytest

from echelon import cli
from echelon.algorithms import REGISTERED
from echelon.runs.folder import RunFolder
from echelon.runs.metrics import read_metrics

ROOT = Path(__file__).parents[2]
BUDGET = ["--iterations", "2", "--num-envs", "24", "--device", "cpu"]
EXTRA = {"train": BUDGET, "compare": BUDGET, "evaluate": ["--num-envs", "2", "--device", "cpu"], "env": BUDGET[2:]}


def blocks_of(page: str, language: str = "python") -> list[str]:
    """What a page shows in a language."""
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)


def test_the_commands_of_the_tutorial_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Word for word, but for a budget of two iterations, and one run of a comparison."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    blocks = "".join(blocks_of("docs/tutorial.md", "sh"))
    assert "--algos ppo cpo --seeds 2" in blocks
    blocks = blocks.replace("--algos ppo cpo --seeds 2", "--algos ppo --seeds 1")
    lines = [shlex.split(line.partition("#")[0]) for line in blocks.splitlines()]
    commands = [words[1:] for words in lines if words[0] == "echelon"]
    assert [words[0] for words in commands] == ["new-task", "env", "train", "evaluate", "record", "compare", "export"]
    for words in commands:
        assert cli.main([*words, *EXTRA.get(words[0], [])]) == 0, words
    code = blocks_of("docs/tutorial.md")
    assert code == [(tmp_path / "reach_arm" / name).read_text() for name in ("task.py", "settings.py")]
    assert sum(len(block.splitlines()) for block in code) < 70
    assert (tmp_path / "numpy_policy.py").exists()
    capsys.readouterr()
    assert cli.main(["new-task", "Arm", "robots"]) == 0
    assert "Next, in robots:" in capsys.readouterr().out
    assert cli.main(["new-task", "Arm", "robots"]) == 2  # it overwrites nothing
    assert "robots/arm exists already" in capsys.readouterr().err


def test_the_algorithm_on_its_page_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Word for word, but for a budget of two iterations. Every policy reads its neighbour's block and its own."""
    (example,) = blocks_of("docs/your-algorithm.md")
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


FOLDERS = (".", "docs", "docs/*", "results", "results/*", "results/*/*")
PAGES = [path.relative_to(ROOT) for part in FOLDERS for path in ROOT.glob(f"{part}/*.md")]


def test_training_from_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    """Word for word, but for a budget of two iterations."""
    training = blocks_of("docs/api.md")[0]
    assert "env_steps=500_000" in training
    monkeypatch.chdir(tmp_path)
    exec(training.replace("env_steps=500_000", "env_steps=8_192"), {})
    said = capsys.readouterr().out
    assert len(re.findall(r"^[0-3] (?:deterministic|sampled) -?[\d.]+$", said, re.MULTILINE)) == 4 * 2
    assert (tmp_path / "runs" / "api" / "metrics.jsonl").exists()


def test_an_environment_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """A fifth of the steps teach the leader to move towards the origin, and the run resumes.

    A point that stays where it starts, at a mean distance of √(π/2) = 1.25, returns -50 in 40 steps.
    """
    monkeypatch.chdir(tmp_path)
    for page, steps in (("README.md", "2_000"), ("docs/environments.md", "10_000"), ("docs/environments.md", "20_000")):
        text = blocks_of(page)[0].replace("runs/point", f"runs/{page}")
        assert "env_steps=100_000" in text
        exec(text.replace("100_000", steps).replace("num_envs=96", 'num_envs=96, device="cpu"'), {})
    first, second = map(float, re.findall(r"^the leader's return: (-?[\d.]+)$", capsys.readouterr().out, re.MULTILINE))
    assert second > max(first, -40)


def test_links_and_commands_lead_somewhere() -> None:
    """Links to a file, and to a heading in it where one is named; commands to files and targets that exist. The README
    fits on a screen or two."""
    assert len((ROOT / "README.md").read_text().split()) <= 700
    broken = []
    for page in PAGES:
        text = (ROOT / page).read_text()
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            path, _, heading = target.partition("#")
            file = (ROOT / page).parent / path if path else ROOT / page
            if not file.exists() or (heading and heading not in headings(file)):
                broken.append(f"{page}: {target}")
        for name in re.findall(r"(?:python|pytest) ((?:benchmarks|docs|results|tests)/[\w/]+\.py)", text):
            if not (ROOT / name).exists():
                broken.append(f"{page}: {name}")
    assert broken == []
    assert {"demo", "test"} <= set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))


def headings(page: Path) -> set[str]:
    """Headings of a page, as links spell them."""
    found = re.findall(r"^#+ (.+)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in found}
