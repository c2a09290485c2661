"""The algorithm on its page trains as it is written."""

import re
from pathlib import Path

import pytest

from echelon.algorithms import REGISTERED
from echelon.runs.folder import RunFolder
from echelon.runs.metrics import read_metrics

PAGE = (Path(__file__).parents[2] / "docs" / "your-algorithm.md").read_text()
(EXAMPLE,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


def test_the_example_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Word for word, but for a budget of two iterations. Every policy reads its neighbour's block besides its own."""
    assert "env_steps=500_000" in EXAMPLE
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("echelon.algorithms.REGISTERED", known := dict(REGISTERED))
    exec(EXAMPLE.replace("env_steps=500_000", 'env_steps=8_192, device="cpu"'), {})
    assert known.keys() - REGISTERED.keys() == {"ring"}
    lines = read_metrics(RunFolder.open(tmp_path / "runs" / "ring"))
    assert len(lines) == 2
    for line in lines:
        assert line["loss/actor"] == pytest.approx(line["loss/own"] + line["loss/neighbour"], abs=1e-5)
        assert line["effort"] < 0 < line["clip_fraction/neighbour"]
