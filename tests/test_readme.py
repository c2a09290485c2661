"""What the README shows works as it is written."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"


def test_the_python_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Word for word, but for a budget of two iterations."""
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    assert "env_steps=500_000" in code
    monkeypatch.chdir(tmp_path)
    exec(code.replace("env_steps=500_000", "env_steps=8_192"), {})
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4 * 2  # policies, deterministic and sampled
    assert (tmp_path / "runs" / "api" / "metrics.jsonl").exists()


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", README.read_text()):
        assert (README.parent / target).exists(), target


def test_the_two_commands_exist() -> None:
    makefile = (README.parent / "Makefile").read_text()
    assert re.search(r"^demo:", makefile, flags=re.MULTILINE)
    assert re.search(r"^test:", makefile, flags=re.MULTILINE)
