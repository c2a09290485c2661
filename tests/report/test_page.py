"""The page in a real browser: what a reader sees and does."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Browser, Page, browser
from report.conftest import ODD, Written
from report.synthetic import write_run

from echelon.report.comparison import improvements, reach_table, score_table
from echelon.report.page_file import page as whole_page
from echelon.report.payload import payload
from echelon.report.write import read_contents

__all__ = ["browser"]  # a fixture


@pytest.fixture
def page(browser: Browser, written: Written) -> Iterator[Page]:
    with browser.page(written.page, width=1300, height=900) as page:
        page.wait_for("document.querySelector('#contents a')")
        yield page
        assert page.errors == []
        assert page.requests == []


def texts(page: Page, selector: str) -> list[str]:
    return page.evaluate(f"[...document.querySelectorAll({json.dumps(selector)})].map((e) => e.textContent)")


def run_index(page: Page, name: str) -> int:
    return page.evaluate(f"Report.data.runs.findIndex((run) => run.name === {json.dumps(name)})")


def hide(page: Page, name: str) -> int:
    """Untick a run in the list, whose method is folded open first."""
    index = run_index(page, name)
    method = page.evaluate(f"Report.data.runs[{index}].method")
    page.click(f".method[data-method='{method}'] .more")
    page.click(f"label[data-run='{index}'] input")
    return index


@pytest.mark.parametrize(("width", "phone", "dark"), [(1300, False, False), (800, False, True), (390, True, False)])
def test_it_loads_quietly_and_fits(browser: Browser, written: Written, width: int, phone: bool, dark: bool) -> None:
    with browser.page(written.page, width=width, height=800, dark=dark, phone=phone) as page:
        page.wait_for("document.querySelector('#contents a')")
        assert page.errors == []
        assert page.requests == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        dark_ground = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(19, 21, 25)"
        assert dark_ground == dark
        assert page.evaluate("document.getElementById('selection').open") == (width > 960)


def test_every_section_is_there_and_named(page: Page) -> None:
    names = ["Curves", "Replay", "Scores", "Comparison", "KL maps", "Coupling", "Discriminator", "Policies"]
    assert texts(page, "#contents a") == [*names, "Speed", "Settings", "Runs"]
    assert page.evaluate("[...document.querySelectorAll('section')].every((s) => s.querySelector('.caption'))")
    assert page.evaluate("document.querySelectorAll('#curves-charts .plot').length") == 2
    marks = page.evaluate("[...document.querySelectorAll('#adversary-charts .mark')].map((m) => m.dataset.value)")
    assert [float(mark) for mark in marks] == pytest.approx([math.log(6)] * 2)
    assert "ln 6: a blind guess" in texts(page, "#adversary-charts text")
    (problem,) = texts(page, "#problem-list li")
    assert "broken: its config.json cannot be read" in problem
    assert ODD in texts(page, "#runs-table tbody th")
    assert "unfinished: 30 of 60 iterations" in texts(page, "#runs-table tbody td")


def test_the_pages_statistics_are_those_of_the_tables(page: Page, written: Written) -> None:
    cells = page.evaluate(
        "Report.scoreCells().map((c) => [c.task, Report.data.methods[c.method].name, c.sample.mean, c.sample.deviation,"
        " c.best ? null : c.p, c.best ? null : c.holm, c.bold, Report.stats.iqm(c.values)])"
    )
    expected = [
        [c.task, c.method, c.sample.mean, c.sample.deviation]
        + ([None, None] if c.best else [c.p, c.p_holm])
        + [c.bold, c.iqm]
        for c in score_table(written.contents)
    ]
    for ours, theirs in zip(cells, expected, strict=True):
        assert ours[:2] + ours[6:7] == theirs[:2] + theirs[6:7]
        assert_close(ours[2:6] + ours[7:], theirs[2:6] + theirs[7:], rel=1e-9)
    found = page.evaluate(
        "Report.improvements().map((r) => [Report.data.methods[r.method].name, Report.data.methods[r.other].name,"
        " r.probability, ...r.interval])"
    )
    pairs = {(one.method, one.other): one for one in improvements(written.contents)}
    assert len(found) == 3
    for method, other, probability, low, high in found:
        one = pairs[method, other]
        assert probability == pytest.approx(one.probability)
        assert (low, high) == pytest.approx(one.interval, abs=0.06)  # other random numbers
    reached = [one for one in reach_table(written.contents) if one.task == "Hopper" and one.method == "CPO"]
    (row,) = [row for row in texts(page, "#reach-table tbody tr") if row.startswith("HopperCPO")]
    for one in reached:
        assert f"({one.share:.2f} ×)" in row


def assert_close(ours: list[float | None], theirs: list[float | None], rel: float) -> None:
    assert [x is None for x in ours] == [x is None for x in theirs]
    assert [x for x in ours if x is not None] == pytest.approx([x for x in theirs if x is not None], rel=rel)


def test_the_slider_moves_every_map(page: Page) -> None:
    look = "[...document.querySelectorAll('#maps-figures .map')].map((m) => [Number(m.dataset.frame), m.innerHTML])"
    last: list[Any] = page.evaluate(look)
    assert [frame for frame, _ in last] == [5, 5]  # cpo and sapg, six measurements
    page.evaluate("document.getElementById('moment').focus()")
    page.press("Home")
    first: list[Any] = page.evaluate(look)
    assert [frame for frame, _ in first] == [0, 0]
    assert first[0][1] != last[0][1]
    assert page.evaluate("document.querySelector('#moment').getAttribute('aria-valuetext')") == "0 environment steps"
    page.press("End")
    assert page.evaluate(look) == last


def test_the_nearest_policy_is_circled(page: Page) -> None:
    """For each row of the last map of CartpoleSwingup-cpo-s0, found again from the data."""
    run, places = page.evaluate(
        "(() => { const i = Number(document.querySelector('#maps-figures figure').dataset.run);"
        " const circles = [...document.querySelectorAll('#maps-figures figure:first-child .nearest')];"
        " return [Report.data.runs[i], circles.map((c) => [c.cx.baseVal.value, c.cy.baseVal.value])]; })()"
    )
    flat, cell = run["kl"]["maps"][-1], 240 / 6
    for i in range(6):
        row = flat[6 * i : 6 * i + 6]
        nearest = min((value, j) for j, value in enumerate(row) if j != i)[1]
        assert places[i] == pytest.approx([26 + (nearest + 0.5) * cell, 26 + (i + 0.5) * cell])


def test_the_play_button_plays_and_pauses(page: Page) -> None:
    page.click("#play")
    assert "Pause" in page.evaluate("document.getElementById('play').textContent")
    page.wait_for("Number(document.getElementById('moment').value) > 5")
    page.wait_for("document.querySelector('#maps-figures .map').dataset.frame > 0")
    page.click("#play")
    paused = page.evaluate("document.getElementById('moment').value")
    assert "Play" in page.evaluate("document.getElementById('play').textContent")
    assert 5 < int(paused) < 200
    page.evaluate("new Promise((done) => setTimeout(done, 200))")
    assert page.evaluate("document.getElementById('moment').value") == paused
    page.evaluate("Report.mapState.moment = 198")
    page.click("#play")
    page.wait_for("document.getElementById('play').textContent.includes('Play')")
    assert page.evaluate("document.getElementById('moment').value") == "200"


def test_a_hidden_run_is_hidden_everywhere(page: Page, written: Written) -> None:
    name = "CartpoleSwingup-sapg-s0"
    assert name in page.evaluate("document.querySelector('main').textContent")
    before = page.evaluate("document.querySelector('#curves-charts path.line.c1').getAttribute('d')")
    index = hide(page, name)
    assert page.evaluate(f"document.querySelectorAll('main [data-run=\"{index}\"]').length") == 0
    assert name not in page.evaluate("document.querySelector('main').textContent")
    assert page.evaluate("document.querySelector('#curves-charts path.line.c1').getAttribute('d')") != before
    assert page.evaluate("document.getElementById('shown').textContent") == "19 of 20 shown"
    runs = {run.name: run.final("return/leader") for run in written.contents.runs}
    mean = page.evaluate("Report.scoreCells().find((c) => c.task === 'CartpoleSwingup' && c.method === 1).sample.mean")
    assert mean == pytest.approx((runs["CartpoleSwingup-sapg-s1"] + runs["CartpoleSwingup-sapg-s2"]) / 2)
    page.click(f"label[data-run='{index}'] input")
    assert page.evaluate("document.querySelector('#curves-charts path.line.c1').getAttribute('d')") == before


def test_a_hidden_method_is_hidden_everywhere(page: Page) -> None:
    heads = texts(page, "#scores-table thead th")
    assert heads == ["Task", "PPO", "SAPG", "CPO"]
    page.click(".method[data-method='2'] > label input")  # CPO, the only one with a replay and a discriminator
    assert texts(page, "#scores-table thead th") == ["Task", "PPO", "SAPG"]
    assert page.evaluate("document.querySelectorAll('main .line.c0').length") == 0
    assert page.evaluate("document.getElementById('replay').hidden")
    assert "CPO" not in page.evaluate("document.getElementById('main').textContent").replace("PPO · SAPG · CPO", "")
    for method in (0, 1):
        page.click(f".method[data-method='{method}'] > label input")
    assert page.evaluate("document.getElementById('summary').textContent") == "All runs are hidden."


def test_tables_sort_by_mouse_and_keyboard(page: Page) -> None:
    column = "#runs-table tbody td:nth-child(5)"
    values = [float(text.replace(",", "")) for text in texts(page, column)]
    page.click("#runs-table thead th:nth-child(5) button")
    assert [float(text.replace(",", "")) for text in texts(page, column)] == sorted(values, reverse=True)
    assert (
        page.evaluate("document.querySelector('#runs-table th:nth-child(5)').getAttribute('aria-sort')") == "descending"
    )
    page.press("Enter")  # the button keeps the focus
    assert [float(text.replace(",", "")) for text in texts(page, column)] == sorted(values)
    names = texts(page, "#throughput-table tbody th")
    page.click("#throughput-table thead th:first-child button")
    assert texts(page, "#throughput-table tbody th") == sorted(names, key=str.lower)


def test_curves_change_their_axis_and_statistic(page: Page) -> None:
    labels = "[...document.querySelectorAll('#curves-charts text')].map((t) => t.textContent)"
    assert "environment steps" in page.evaluate(labels)
    band = "document.querySelector('#curves-charts .band').getAttribute('d')"
    before = page.evaluate(band)
    page.click("#curves-controls [data-value='iqm']")
    assert page.evaluate(band) != before
    page.click("#curves-controls [data-value='gradient_steps']")
    assert "gradient steps" in page.evaluate(labels)
    assert page.evaluate("document.querySelector('[data-value=gradient_steps]').getAttribute('aria-pressed')") == "true"
    page.click("#single")
    assert page.evaluate("document.querySelectorAll('#curves-charts .line.faint').length") == 20


def test_a_chart_tells_its_values_to_the_keyboard(page: Page) -> None:
    page.evaluate("document.querySelector('#curves-charts .plot').focus()")
    page.press("ArrowLeft")
    tip = page.evaluate("document.getElementById('tip').textContent")
    assert "environment steps" in tip
    assert tip.index("CPO") < tip.index("SAPG") < tip.index("PPO")  # the highest first
    page.press("Escape")
    assert page.evaluate("document.getElementById('tip').hidden")


def test_light_and_dark_change_by_the_button(page: Page) -> None:
    page.click("#theme")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.colour_scheme(dark=True)
    page.click("#theme")
    assert page.evaluate("document.documentElement.dataset.theme") == "light"


def test_the_replay_moves(page: Page) -> None:
    page.evaluate("document.getElementById('replay').scrollIntoView()")
    page.wait_for("document.querySelector('#replay-stage canvas')")
    assert "CPO on Hopper, run Hopper-cpo-s1" in page.evaluate("document.getElementById('replay-controls').textContent")


@pytest.mark.parametrize("algo", ["ppo", "cpo"])
def test_a_single_run_has_a_page_too(browser: Browser, tmp_path: Path, algo: Any) -> None:
    """Without what takes two methods to compare, or several policies to measure."""
    contents = read_contents([write_run(tmp_path, algo, iterations=12)], "return")
    path = tmp_path / "page.html"
    path.write_text(whole_page(payload(contents), {}, "one"))
    with browser.page(path) as page:
        page.wait_for("document.querySelector('#contents a')")
        assert page.errors == []
        ensemble = ["KL maps", "Coupling", "Policies"] if algo == "cpo" else []
        assert texts(page, "#contents a") == ["Curves", "Scores", *ensemble, "Speed", "Runs"]
        assert f"{algo.upper()} on CartpoleSwingup ends at a return of" in texts(page, "#summary")[0]
        axes = ["Environment steps", "Wall clock", "Gradient steps"]
        assert texts(page, "#curves-controls .segments:first-child button") == axes
