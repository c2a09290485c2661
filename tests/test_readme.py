"""What the README shows works as it is written, and its links, like those of all pages, lead somewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = (".", "docs", "docs/*", "results/*", "results/*/*")
PAGES = [path.relative_to(ROOT) for part in FOLDERS for path in ROOT.glob(f"{part}/*.md")]


def code(page: str) -> str:
    """The first Python that a page shows."""
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)[0]


def test_training_from_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    """Word for word, but for a budget of two iterations."""
    training = code("docs/api.md")
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
        text = code(page).replace("runs/point", f"runs/{page}")
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
