"""What a report writes: one page that needs nothing else, two CSV files, figures on request; and `echelon paper`."""

import csv
import itertools
import json
import math
import re
import shutil
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib import rc_context
from report.conftest import ODD, Written
from report.synthetic import data_of, write_run

from echelon.algorithms import AdversaryConfig
from echelon.algorithms.variants import apply_variants
from echelon.cli import main
from echelon.config import TrainConfig
from echelon.errors import UserError
from echelon.grid import Job
from echelon.report import figures
from echelon.report.page import page, payload
from echelon.report.paper import EXHIBITS, beside_the_paper
from echelon.report.write import read_contents, write_report, write_table
from echelon.runs.metrics import jsonable
from echelon.runs.replays import replay_path
from echelon.tasks import preset
from echelon.training.loop import train


def rows(written: Written, name: str) -> list[dict[str, str]]:
    with (written.page.parent / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_it_is_three_files_unless_figures_are_asked_for(
    written: Written, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And it says what is missing, and where the page is, before what takes long. The table compiles where LaTeX is."""
    assert {path.name for path in written.page.parent.iterdir()} == {"index.html", "runs.csv", "scores.csv"}
    page = write_report(written.contents, tmp_path, figures=5.5)
    missing, address, drawing, _ = capsys.readouterr().out.splitlines()
    assert "broken: its config.json cannot be read" in missing
    assert address == f"The report is {page.resolve().as_uri()}"
    assert "drawing figures/" in drawing
    names = {"curves_mean", "curves_iqm", "is_deviation", "ess", "adversary_loss", "kl_follower_to_leader"}
    names |= {"kl_maps_CartpoleSwingup", "kl_maps_Hopper"}
    folder = tmp_path / "figures"
    files = {f"{name}.{ending}" for name in names for ending in ("pdf", "png")}
    assert {path.name for path in folder.iterdir()} == {"scores.tex"} | files
    for path in folder.glob("*.pdf"):
        assert b"/Type3" not in path.read_bytes()
        assert b"/CIDFontType2" in path.read_bytes()  # TrueType
    assert b"/MediaBox [ 0 0 396 " in (folder / "curves_mean.pdf").read_bytes()  # 5.5 inches
    text = (folder / "scores.tex").read_text()
    best = next(cell for cell in written.contents.cells.values() if cell.best)
    assert rf"{best.sample.mean:.1f} $\pm$ {best.sample.deviation:.1f} (3)" in text
    assert r"\textbf" not in text  # three seeds
    if shutil.which("pdflatex"):
        document = r"\documentclass{article}\usepackage{booktabs}\begin{document}\input{scores.tex}\end{document}"
        (folder / "paper.tex").write_text(document)
        command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-500:]


def test_a_map_circles_the_nearest_policy_that_is_known() -> None:
    """The KL to and from a member of a population that broke, here the second, is NaN: nothing is nearest to it."""
    for second, circles in (([0.2, 0, 0.1], [(2, 0), (2, 1), (0, 2)]), ([math.nan, 0, math.nan], [(2, 0), (0, 2)])):
        with rc_context(figures.STYLE):
            axes = figures.Figure().subplots()
            figures._draw_map(axes, np.array([[0, math.nan, 0.3], second, [0.4, 0.5, 0]]), figures.LogNorm(0.1, 1))
        np.testing.assert_array_equal(axes.lines[0].get_xydata(), circles)


def test_a_figure_of_a_task_with_a_slash_lies_among_the_others(tmp_path: Path) -> None:
    run = write_run(tmp_path, "cpo", iterations=12)
    document = json.loads((run / "config.json").read_text())
    document["config"]["task"] = "../ALE/Pong"
    (run / "config.json").write_text(json.dumps(document))
    figures.write_figures(read_contents([run], "return"), tmp_path / "figures", 5.5)
    assert (tmp_path / "figures" / "kl_maps_.._ALE_Pong.pdf").exists()


def test_panels_wrap_and_long_names_stay_off_them(tmp_path: Path) -> None:
    """Twelve variants of two settings in a narrow column."""
    paths = []
    for rate, steps in itertools.product((1e-4, 2e-4, 3e-4, 4e-4), (8, 16, 32)):
        update = replace(TrainConfig().update, learning_rate=rate, horizon=steps)
        paths.append(write_run(tmp_path / f"{rate} {steps}", "sapg", iterations=12, update=update))
    with rc_context(figures.STYLE):
        curves = figures.curves(read_contents(paths, "return"), "return/leader", "mean", 3.25)
        assert curves is not None
        curves.draw_without_rendering()
    (legend,) = curves.legends
    box = legend.get_window_extent()
    panel = curves.axes[0].get_tightbbox()
    assert panel is not None
    assert not box.overlaps(panel)
    assert 0 <= box.x0 < box.x1 <= curves.bbox.x1
    for tasks, width, columns in ((2, 5.5, 2), (10, 5.5, 4), (10, 3.25, 2), (1, 3.25, 1)):
        figure, places = figures.panels(tasks, width)
        assert (len(places), figure.get_figwidth(), places[0].get_gridspec().ncols) == (tasks, width, columns)


def test_a_name_in_the_table_for_papers_is_no_latex(tmp_path: Path) -> None:
    """One of several lines would end a cell."""
    write_table([["", "50 % of a_b · {x}"], ["x\n\n\\input{y}", "**1 ± 2**"]], tmp_path / "table.tex")
    lines = (tmp_path / "table.tex").read_text().splitlines()
    assert lines[2] == r" & 50 \% of a\_b $\cdot$ \{x\} \\"
    assert lines[4] == r"x \textbackslash{}input\{y\} & \textbf{1 $\pm$ 2} \\"


def test_csv_files_hold_what_was_computed(written: Written) -> None:
    cells, found, runs = written.contents.cells.values(), rows(written, "scores"), rows(written, "runs")
    assert [(row["task"], row["method"]) for row in found] == [(cell.task, cell.method) for cell in cells]
    assert [float(row["mean"]) for row in found] == pytest.approx([cell.sample.mean for cell in cells])
    assert [row["p"] == "" for row in found] == [cell.best for cell in cells]
    assert len(runs) == 20
    assert [row["run"] for row in runs if row["finished"] == "no"] == ["Hopper-ppo-s3"]
    assert ODD in {row["run"] for row in runs}
    assert "evaluated/leader" not in runs[0]  # what --evaluate-every logs: its end is evaluated_return
    first = next(row for row in runs if row["run"] == "CartpoleSwingup-cpo-s1")
    assert float(first["evaluated_return"]) == pytest.approx(150 + 7 * 22 + 1)
    # An interrupted comparison writes the same bytes, so there is no clock time in them.
    assert not any(re.search("wall|_per_s|time", path.read_text()) for path in written.page.parent.glob("*.csv"))


def test_the_page_refers_to_nothing_outside_and_no_name_leaves_its_script(written: Written) -> None:
    text = written.page.read_text()
    markup = re.sub(r"<(script|style).*?</\1>", "", text, flags=re.DOTALL)
    assert set(re.findall(r'\b(?:src|href|data|srcset)="([^"]*)"', markup)) == {"data:,", "#main"}
    assert "@import" not in text
    assert text.count("</script>") == 4
    run = written.contents.runs[0]
    odd = replace(written.contents, runs=[replace(run, name="</script><script>alert(1)</script><!--")])
    assert page(odd).count("</script>") == 4
    assert "<title>&lt;/script&gt;" in page(odd)


def test_forty_runs_fit_into_five_megabytes(tmp_path: Path) -> None:
    """Curves have 150 points and maps 60 frames, however long a run is; 600 iterations fill both. Five stand for forty,
    and half of the page is left for the player and its replays."""
    for seed in range(5):
        write_run(tmp_path, "cpo", seed=seed, iterations=600, adversary=AdversaryConfig(coef=0.1))
    data = payload(read_contents([tmp_path], "return"))
    curve = next(one for one in data["curves"] if one["metric"] == "return/leader")
    assert len(curve["x"]) == len(curve["lines"][0]["mean"]) == 150
    assert len(data["maps"][0]["maps"]) == 60
    assert [one["seed"] for one in data["maps"]] == [0, 1, 2, 3, 4, "mean"]
    np.testing.assert_allclose(data["maps"][-1]["maps"][7], np.mean([one["maps"][7] for one in data["maps"][:-1]], 0))
    assert len(json.dumps(jsonable(data, digits=6), separators=(",", ":"))) * 8 * 0.55 < 8_000_000  # packed, in base64


def test_every_metric_is_in_the_page_and_a_population_has_no_followers(written: Written, tmp_path: Path) -> None:
    data = data_of(written.page)
    metrics = {one["metric"] for one in data["curves"]}
    named = {"return/leader", "upright_late/leader", "loss/actor", "loss/23", "ess", "fps/total", "time/update"}
    assert named <= metrics
    assert not any("policy_" in name for name in metrics)
    assert {"return", "sigma", "entropy"} <= set(data["runs"][-1]["by_policy"])
    for algo, population, policies in (("pbt", True, 6), ("cpo", False, 6), ("ppo", False, 0)):
        (run,) = payload(read_contents([write_run(tmp_path, algo, iterations=3)], "return"))["runs"]
        assert (run["population"], len(run["by_policy"].get("return", []))) == (population, policies)


def test_mistakes_are_one_sentence_and_known_failures_are_told(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"there is no run to report on \(.*empty: it is empty\)"):
        read_contents([tmp_path / "empty"], "return")
    path = write_run(tmp_path, "ppo", iterations=3)
    with pytest.raises(UserError, match="there is no run folder xxx"):
        read_contents(["x" * 300], "return")
    with pytest.raises(UserError, match="no run logged retrun of its leader; did you mean return"):
        read_contents([path], "retrun")
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"file cannot be written: .*; choose another --out"):
        write_report(read_contents([path], "upright_late"), tmp_path / "file")
    contents = read_contents([path, tmp_path / "never"], "return", {path: "it broke", tmp_path / "never": "why"})
    assert contents.runs[0].notes == ["it broke"]
    assert contents.problems == {str(tmp_path / "never"): "why"}


def test_a_note_about_a_damaged_replay_is_written_once(tmp_path: Path) -> None:
    """However often the page is written, as with --open and --watch."""
    path = write_run(tmp_path, "ppo", iterations=3)
    (path / "replay").mkdir()
    replay_path(path).write_text("{")
    contents = read_contents([path], "return")
    for _ in range(2):
        (run,) = data_of(write_report(contents, tmp_path / "out"))["runs"]
        assert [note.count("not a whole replay") for note in run["notes"]] == [1]


def test_it_watches_runs_that_have_logged_nothing_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU may compile for minutes before the first iteration."""
    write_run(tmp_path, "ppo", iterations=2)
    late = write_run(tmp_path, "ppo", seed=1, iterations=2)
    metrics = (late / "metrics.jsonl").read_bytes()
    (late / "metrics.jsonl").unlink()
    monkeypatch.setattr("echelon.commands.report.is_held", late.__eq__)
    monkeypatch.setattr(time, "sleep", lambda _: (late / "metrics.jsonl").write_bytes(metrics))
    assert main(["report", str(tmp_path), "--watch", "2", "--out", str(tmp_path / "out")]) == 0
    assert len(data_of(tmp_path / "out" / "index.html")["runs"]) == 2


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
            file.write('{"iteration": 3, "env_steps": 4608, "gradient_steps": 15, "return/leader": 1.0}\n')

    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.setattr(time, "sleep", sleep)
    assert main(["report", str(path), "--watch", "2", "--open", "--figures", "--column", "3.25in"]) == 0
    assert opened == [page.resolve().as_uri()]
    assert slept == [2.0]
    assert data_of(page)["again"] is None
    assert (page.parent / "figures" / "curves_mean.pdf").exists()
    assert capsys.readouterr().out.startswith(f"The page is {page.resolve().as_uri()}, written again every 2 s")


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
