"""What a report writes: files, tables, figures, and one page that needs nothing else."""

import csv
import json
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from matplotlib import rc_context
from report.conftest import ODD, Written
from report.synthetic import write_run

from echelon.config import AdversaryConfig, TrainConfig
from echelon.errors import UserError
from echelon.report import figures
from echelon.report.comparison import score_table
from echelon.report.figures import _panels
from echelon.report.page_file import page
from echelon.report.payload import payload, policy_metrics
from echelon.report.reading import read_run
from echelon.report.tables import Entry, Table, _tex, latex, markdown
from echelon.report.write import read_contents, write_report


def rows(written: Written, name: str) -> list[dict[str, str]]:
    with (written.page.parent / "csv" / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_every_figure_is_there_for_paper_and_screen(written: Written) -> None:
    """One statistic a file, all tasks together and each alone."""
    folder = written.page.parent / "figures"
    curves = {f"curves_env_steps_{statistic}" for statistic in ("mean", "iqm")}
    curves |= {f"{name}_{task}" for name in curves for task in ("CartpoleSwingup", "Hopper")}
    names = curves | {"curves_wall_s_mean", "curves_gradient_steps_mean", "is_deviation", "ess", "adversary_loss"}
    names |= {"kl_follower_to_leader", "kl_maps_CartpoleSwingup", "kl_maps_Hopper", "aggregate", "policies"}
    endings = ("png", "pdf", "svg")
    assert {path.name for path in folder.iterdir()} == {
        f"{name}.{end}" for name in {*names, "throughput"} for end in endings
    }
    for path in folder.glob("*.pdf"):
        text = path.read_bytes()
        assert b"/Type3" not in text
        assert b"/CIDFontType2" in text  # TrueType
    size = ElementTree.parse(folder / "curves_env_steps_mean.svg").getroot().get("width")
    assert size == "396pt"  # 5.5 inches


@pytest.mark.parametrize(("tasks", "width", "columns"), [(2, 5.5, 2), (10, 5.5, 4), (10, 3.25, 2), (1, 3.25, 1)])
def test_panels_wrap(tasks: int, width: float, columns: int) -> None:
    figure, panels = _panels(tasks, width, 1.3)
    assert (len(panels), figure.get_figwidth()) == (tasks, width)
    assert panels[0].get_gridspec().ncols == columns


def test_long_names_stay_off_the_panels_and_numbers_are_plain(tmp_path: Path) -> None:
    """Twelve variants of two settings in a narrow column."""
    base = TrainConfig().update
    paths = [
        write_run(tmp_path, "sapg", iterations=12, update=replace(base, learning_rate=rate, horizon=steps)).rename(
            tmp_path / f"{rate} {steps}"
        )
        for rate in (1e-4, 2e-4, 3e-4, 4e-4)
        for steps in (8, 16, 32)
    ]
    with rc_context(figures.STYLE):
        curves = figures.method_curves(read_contents(paths, "return"), "return/leader", 3.25)
        ((_, maps),) = figures.kl_figures(read_contents(paths[:1], "return"), 3.25)
        assert curves is not None
        curves.draw_without_rendering()
        maps.savefig(tmp_path / "maps.svg")
    (legend,) = curves.legends
    box = legend.get_window_extent()
    assert not box.overlaps(curves.axes[0].get_tightbbox())
    assert 0 <= box.x0 < box.x1 <= curves.bbox.x1
    assert "mathdefault" not in (tmp_path / "maps.svg").read_text()


def test_tables_for_papers(written: Written) -> None:
    folder = written.page.parent / "tables"
    assert {path.name for path in folder.iterdir()} == {
        f"{name}.{end}" for name in ("scores", "coupling", "settings") for end in ("tex", "md")
    }
    text = (folder / "scores.tex").read_text()
    best = next(cell for cell in score_table(written.contents) if cell.best)
    mean, deviation = best.sample.mean, best.sample.deviation
    assert rf"\textbf{{{mean:.1f} $\pm$ {deviation:.1f} (3)}}" in text
    assert "CartpoleSwingup: evaluated at the end of training. Hopper: training return." in text
    assert _tex("50 % of a_b · {x}") == r"50 \% of a\_b $\cdot$ \{x\}"
    assert "| Hopper | SAPG | 0.895" in (folder / "coupling.md").read_text()


def test_a_name_is_text_in_every_table() -> None:
    """One of several lines would end the comment that a caption is, and the next be LaTeX."""
    table = Table(["", "a"], [[Entry("x\n\n\\input{y}"), Entry("<b>|")]], "On x\n\\input{y}.")
    assert latex(table).splitlines()[0] == r"% On x \input{y}."
    assert latex(table).splitlines()[5] == r"x \textbackslash{}input\{y\} & <b>| \\"
    assert markdown(table).splitlines()[2] == r"| x \input{y} | &lt;b>\| |"


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs LaTeX: apt-get install texlive-latex-recommended")
def test_the_tables_compile(written: Written, tmp_path: Path) -> None:
    tables = "".join(rf"\input{{{path}}}\par" for path in sorted((written.page.parent / "tables").glob("*.tex")))
    document = rf"\documentclass{{article}}\usepackage{{booktabs}}\begin{{document}}{tables}\end{{document}}"
    (tmp_path / "paper.tex").write_text(document)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-500:]


def test_tables_hold_what_was_computed(written: Written) -> None:
    cells = score_table(written.contents)
    found = rows(written, "scores")
    assert [(row["task"], row["method"]) for row in found] == [(cell.task, cell.method) for cell in cells]
    assert [float(row["mean"]) for row in found] == pytest.approx([cell.sample.mean for cell in cells])
    assert [row["p"] == "" for row in found] == [cell.best for cell in cells]
    runs = rows(written, "runs")
    assert len(runs) == 20
    assert [row["run"] for row in runs if row["finished"] == "no"] == ["Hopper-ppo-s3"]
    assert ODD in {row["run"] for row in runs}
    assert rows(written, "problems") == [
        {"folder": written.contents.problems[0].path, "problem": written.contents.problems[0].sentence}
    ]
    curves = rows(written, "curves_by_gradient_steps")
    steps = {row["method"]: float(row["gradient_steps"]) for row in curves if row["task"] == "CartpoleSwingup"}
    assert steps == {"CPO": 600, "PPO": 300, "SAPG": 300}  # the last row of each
    first = {"run": "CartpoleSwingup-cpo-s0", "env_steps": "1536", "from": "0", "to": "1"}
    assert first.items() <= rows(written, "kl")[0].items()
    assert {row["setting"] for row in rows(written, "settings")} == {"algo", "policies", "adversary.coef"}


def test_clock_times_stand_apart(written: Written) -> None:
    """The files that an interrupted comparison writes again to the byte have no time in them."""
    folder = written.page.parent / "csv"
    timed = {path.name for path in folder.iterdir() if re.search("wall|_per_s|collect", path.read_text())}
    assert timed == {"wall_clock.csv", "throughput.csv"}


def test_what_is_missing_is_said(written: Written) -> None:
    """And where the page is, before what takes long."""
    missing, page, *rest = written.said
    assert "broken: its config.json cannot be read" in missing
    assert page == f"The report is {written.page.resolve().as_uri()}"
    assert "drawing figures/" in rest[0]


class References(HTMLParser):
    """Addresses that a page would load."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value or "" for name, value in attrs if name in ("src", "href", "data", "srcset")]


def test_the_page_refers_to_nothing_outside(written: Written) -> None:
    parser = References()
    parser.feed(written.page.read_text())
    assert set(parser.found) == {"data:,", "#main"}
    assert "@import" not in written.page.read_text()


def test_a_name_cannot_leave_its_script(written: Written) -> None:
    data = payload(written.contents)
    data["runs"][0]["name"] = "</script><script>alert(1)</script><!--"
    text = page(data, {"</script>": '{"a": "</script>"}'}, "<h1> & co")
    assert text.count("</script>") == 4
    assert "<title>&lt;h1> &amp; co" in text


def test_forty_runs_fit_into_five_megabytes(tmp_path: Path) -> None:
    """Curves have 300 points and maps 60 frames, however long a run is; 600 iterations fill both. Five stand for forty,
    and half of the page is left for the player and its replays."""
    for seed in range(5):
        write_run(tmp_path, "cpo", seed=seed, iterations=600, adversary=AdversaryConfig(coef=0.1))
    contents = read_contents([tmp_path], "return")
    data = payload(contents)
    assert len(data["runs"][0]["curves"]["return/leader"]) == 300
    assert len(data["runs"][0]["kl"]["maps"]) == 60
    assert len(json.dumps(data["runs"], separators=(",", ":"))) * 8 < 2_500_000


def test_the_leader_of_a_population_is_whoever_does_best(tmp_path: Path) -> None:
    def found(algo: Any) -> tuple[int, str]:
        followers, leader = policy_metrics(read_run(write_run(tmp_path, algo, iterations=3)))
        return len(followers), leader

    assert found("pbt") == (6, "return/leader")
    assert found("cpo") == (5, "return/policy_0")
    assert found("ppo") == (0, "return/leader")


def test_mistakes_are_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"there is no run to report on \(.*empty: it is empty\)"):
        read_contents([tmp_path / "empty"], "return")
    path = write_run(tmp_path, "ppo", iterations=3)
    with pytest.raises(UserError, match="no run logged retrun of its leader; did you mean return"):
        read_contents([path], "retrun")
    contents = read_contents([path], "upright_late")
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"the report cannot be written to .*; choose another --out"):
        write_report(contents, tmp_path / "file")


def test_known_failures_are_told(tmp_path: Path) -> None:
    path = write_run(tmp_path, "ppo", iterations=3)
    contents = read_contents([path, tmp_path / "never"], "return", {path: "it broke", tmp_path / "never": "why"})
    assert contents.runs[0].notes == ["it broke"]
    assert [(one.path, one.sentence) for one in contents.problems] == [(str(tmp_path / "never"), "why")]
