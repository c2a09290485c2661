"""`echelon report` from the command line."""

import json
import time
from pathlib import Path

import pytest
from report.synthetic import data_of, write_run

from echelon.cli import main


def test_it_opens_and_watches_until_all_runs_have_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last iteration is logged while it sleeps; the page looks again on its own until then."""
    path = write_run(tmp_path, "ppo", iterations=2, planned=3)
    page, opened, slept = path / "report" / "index.html", [], []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        assert data_of(page)["again"] == 2
        assert not (page.parent / "figures").exists()
        with (path / "metrics.jsonl").open("a") as file:
            file.write(
                json.dumps({"iteration": 3, "env_steps": 4608, "gradient_steps": 15, "return/leader": 1.0}) + "\n"
            )

    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.setattr(time, "sleep", sleep)
    assert main(["report", str(path), "--watch", "2", "--open", "--figures", "--column", "3.25in"]) == 0
    assert opened == [page.resolve().as_uri()]
    assert slept == [2.0]
    assert data_of(page)["again"] is None
    assert (page.parent / "figures" / "curves_mean.pdf").exists()
    assert capsys.readouterr().out.startswith(f"The page is {page.resolve().as_uri()}, written again every 2 s")
