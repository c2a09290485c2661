"""`echelon paper`: the plan of the real tasks, and all of it on a quick one."""

import itertools
from pathlib import Path
from typing import Any

import pytest
from report.synthetic import write_run

from echelon.algorithms.variants import apply_variants
from echelon.cli import main
from echelon.grid import Job
from echelon.report.paper import EXHIBITS, beside_the_paper
from echelon.report.write import read_contents
from echelon.tasks import preset
from echelon.training.loop import train

TINY = ["--tasks", "CartpoleSwingup", "--num-envs", "24", "--update.horizon", "8", "--model.hidden", "8"]
TINY += ["--device", "cpu", "--policies", "2", "--diagnostics.every", "2", "--env-steps", "1000", "--seeds", "1"]


def test_the_plan_of_the_papers_table_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Six tasks, four algorithms, five seeds, the presets' 20.447 G steps each: 2,454 G; at 2.19 M steps per second
    1,120,396 s, which are 12 days and 23.2 hours."""
    flags = ["--device", "cpu", "--out", str(tmp_path), "--plan"]
    assert main(["paper", "table1", *flags]) == 0
    said = "120 runs, 0 of them done; 2454 G steps are left, about 12 d 23 h of an H200 at 2.19 M steps/s"
    assert capsys.readouterr().out == f"Performance on dexterous manipulation: {said}\n"
    assert main(["paper"]) == 0
    assert "  table1 " in capsys.readouterr().out


def test_every_exhibit_names_tasks_and_methods_that_exist() -> None:
    for exhibit in EXHIBITS.values():
        for task, method in itertools.product(exhibit.tasks, exhibit.methods):
            assert apply_variants(preset(task), method.split("+")).task == task


def test_ours_stand_beside_the_papers(tmp_path: Path) -> None:
    """By hand: iterations of 0.06 + 0.01 + 0.15 to 0.17 s are alike, so nothing costs more than SAPG."""
    for algo, variant in (("sapg", ()), ("cpo", ("no_adversary",)), ("cpo", ()), ("cpo", ("lambda_f_0.5",))):
        write_run(tmp_path, algo, task="ShadowHand", iterations=12, variant=variant)
    _, *rows = beside_the_paper(read_contents([tmp_path], "return"))
    found = {(method, quantity): numbers for _, method, quantity, *numbers in rows}
    assert found["no_adversary", "time over SAPG's"] == ["0.230 s (+0%)", "+24%"]
    assert found["CPO", "time over SAPG's"] == ["0.230 s (+0%)", "+52%"]
    assert [found["lambda_f_0.5", name][1] for name in ("is_deviation", "ess")] == ["0.403", "0.763"]
    assert found["SAPG", "ess"][1] == "0.0223"
    ours, theirs = found["CPO", "score"]
    assert ours.endswith("(1), training return")
    assert theirs == "13,762 ± 414"
    assert len(rows) == 8  # SAPG 3, lambda_f_0.5 2, CPO 2, no_adversary 1


def test_from_nothing_to_the_figure_on_a_quick_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Trained and drawn; a second time nothing is left to train. Processes are tested with the grid, figures with the
    report."""
    monkeypatch.chdir(tmp_path)

    def train_here(jobs: list[Job], logs: Path, **given: Any) -> dict[str, str]:
        for job in jobs:
            train(job.config)
        return {}

    widths: list[float] = []
    monkeypatch.setattr("echelon.report.figures.write_figures", lambda *given: widths.append(given[-1]) or 0)
    monkeypatch.setattr("echelon.grid.run", train_here)
    assert main(["paper", "entropy", *TINY, "--column", "3.25in"]) == 0
    assert "2 runs, 0 of them done" in capsys.readouterr().out
    assert widths == [3.25]
    written = {path.name for path in Path("runs/paper/entropy/figures").iterdir()}
    assert written == {"beside_the_paper.tex", "scores.tex"}
    assert Path("runs/paper/entropy/index.html").exists()
    assert main(["paper", "entropy", *TINY, "--plan"]) == 0
    assert "2 runs, 2 of them done\n" in capsys.readouterr().out
