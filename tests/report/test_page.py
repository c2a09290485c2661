"""The page in a real browser: what a reader sees and does."""

import json
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from browser import Browser, Page, browser
from report.conftest import ODD, Written
from report.synthetic import write_evaluation, write_run

from echelon.config import AdversaryConfig, PullConfig
from echelon.report.comparison import aggregates, improvements, reach_table, score_table
from echelon.report.tables import pair
from echelon.report.write import read_contents, write_page

__all__ = ["browser"]  # a fixture


@pytest.fixture
def page(browser: Browser, written: Written) -> Iterator[Page]:
    with browser.page(written.page, width=1300, height=900) as page:
        page.wait_for("Report.ready")
        yield page
        assert page.errors == []
        assert page.requests == []


def texts(page: Page, selector: str) -> list[str]:
    """Text of all elements that match, as it will be once they are on the screen."""
    page.wait_for("Report.ready && !Report.waiting()")
    page.evaluate("((all) => { if (!all.open) { all.open = true; Report.refresh('runs'); } })(Report.find('runs-all'))")
    page.evaluate("Report.drawAll()")
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
        page.wait_for("Report.ready")
        assert page.errors == []
        assert page.requests == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        dark_ground = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(19, 21, 25)"
        assert dark_ground == dark
        assert page.evaluate("document.getElementById('selection').open") == (width > 960)


def test_every_section_is_there_and_named(page: Page) -> None:
    names = [
        "Curves",
        "Replay",
        "Scores",
        "All tasks",
        "Comparison",
        "KL maps",
        "Coupling",
        "Discriminator",
        "Policies",
    ]
    assert texts(page, "#contents a:not([hidden])") == [*names, "Speed", "Settings", "Runs"]
    assert page.evaluate("[...document.querySelectorAll('section')].every((s) => s.querySelector('.caption'))")
    assert page.evaluate("document.querySelectorAll('#curves-charts .plot').length") == 2
    marks = page.evaluate("[...document.querySelectorAll('#adversary-charts .mark')].map((m) => m.dataset.value)")
    assert [float(mark) for mark in marks] == pytest.approx([math.log(6)] * 2)
    assert "ln 6: a blind guess" in texts(page, "#adversary-charts text")
    (problem,) = texts(page, "#problem-list li")
    assert "broken: its config.json cannot be read" in problem
    assert ODD in texts(page, "#runs-table tbody th")
    assert "unfinished: 30 of 60 iterations" in texts(page, "#runs-table tbody td")
    # Equal tables of settings are one, and speed has a row per task and method.
    assert texts(page, "#settings-tables h3") == ["CartpoleSwingup, Hopper"]
    assert len(texts(page, "#throughput-table tbody tr")) == 6


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
    basis = page.evaluate("Report.tasks().map((task) => Report.basis(task).evaluated)")
    assert basis == [written.contents.basis(task).evaluated for task in written.contents.tasks] == [True, False]
    pairs = {(one.method, one.other): one for one in improvements(written.contents)}
    found = texts(page, "#improvement-table tbody tr")
    assert len(found) == 3
    for row in found:
        for (method, _), one in pairs.items():
            assert not row.startswith(method) or f"{one.probability:.2f}" in row
    ours = page.evaluate(
        "Report.aggregates().map((a) =>"
        " [Report.data.methods[a.method].name, a.iqm, ...Report.interval('iqm', a.strata)])"
    )
    for one, theirs in zip(ours, aggregates(written.contents), strict=True):
        assert one[0] == theirs.method
        assert one[1] == pytest.approx(theirs.iqm, rel=1e-3)  # curves, whose starts are the scale's 0, are rounded
        assert one[2:] == pytest.approx(theirs.interval, abs=0.02)  # other random numbers
    reached = [one for one in reach_table(written.contents) if one.task == "Hopper" and one.method == "CPO"]
    (row,) = [row for row in texts(page, "#reach-table tbody tr") if row.startswith("HopperCPO")]
    for one in reached:
        assert f"({one.share:.2f} ×)" in row


def assert_close(ours: list[float | None], theirs: list[float | None], rel: float) -> None:
    assert [x is None for x in ours] == [x is None for x in theirs]
    assert [x for x in ours if x is not None] == pytest.approx([x for x in theirs if x is not None], rel=rel)


def test_the_slider_moves_every_map(page: Page) -> None:
    look = "[...document.querySelectorAll('#maps-figures .map')].map((m) => [Number(m.dataset.frame), m.innerHTML])"
    page.evaluate("document.getElementById('maps').scrollIntoView()")
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
    page.evaluate("Report.drawAll()")
    assert page.evaluate(f"document.querySelectorAll('main [data-run=\"{index}\"]').length") == 0
    assert name not in page.evaluate("document.querySelector('main').textContent")
    assert page.evaluate("document.querySelector('#curves-charts path.line.c1').getAttribute('d')") != before
    assert page.evaluate("document.getElementById('shown').textContent") == "19 of 20 shown"
    runs = {run.name: run.evaluation.of("return/leader") for run in written.contents.runs if run.evaluation}
    mean = page.evaluate("Report.scoreCells().find((c) => c.task === 'CartpoleSwingup' && c.method === 1).sample.mean")
    assert mean == pytest.approx((runs["CartpoleSwingup-sapg-s1"] + runs["CartpoleSwingup-sapg-s2"]) / 2)
    page.evaluate("document.getElementById('curves').scrollIntoView()")
    page.click(f"label[data-run='{index}'] input")
    assert page.evaluate("document.querySelector('#curves-charts path.line.c1').getAttribute('d')") == before


def test_a_hidden_method_is_hidden_everywhere(page: Page) -> None:
    heads = texts(page, "#improvement-table thead th")
    assert heads == ["Row beats column", "PPO", "SAPG", "CPO"]
    page.click(".method[data-method='2'] > label input")  # CPO, the only one with a replay and a discriminator
    assert texts(page, "#improvement-table thead th") == ["Row beats column", "PPO", "SAPG"]
    assert page.evaluate("document.querySelectorAll('main section:not([hidden]) .line.c0').length") == 0
    assert page.evaluate("document.getElementById('replay').hidden")
    assert not any("CPO" in text for text in texts(page, "main section:not([hidden])"))
    for method in (0, 1):
        page.click(f".method[data-method='{method}'] > label input")
    assert page.evaluate("document.getElementById('summary').textContent") == "All runs are hidden."


def test_tables_sort_by_mouse_and_keyboard(page: Page) -> None:
    texts(page, "#runs-table")
    column = "#runs-table tbody td:nth-child(5)"
    values = [float(text.replace(",", "")) for text in texts(page, column)]
    page.click("#runs-table thead th:nth-child(5) button")
    assert [float(text.replace(",", "")) for text in texts(page, column)] == sorted(values, reverse=True)
    assert (
        page.evaluate("document.querySelector('#runs-table th:nth-child(5)').getAttribute('aria-sort')") == "descending"
    )
    page.press("Enter")  # the button keeps the focus
    assert [float(text.replace(",", "")) for text in texts(page, column)] == sorted(values)


def test_curves_change_their_axis_and_statistic(page: Page) -> None:
    labels = "[...document.querySelectorAll('#curves-charts text')].map((t) => t.textContent)"
    assert "environment steps" in page.evaluate(labels)
    band = "document.querySelector('#curves-charts .band').getAttribute('d')"
    before = page.evaluate(band)
    page.click("#curves-controls [data-value='iqm']")
    page.wait_for("!Report.waiting()")
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


def show(browser: Browser, paths: Sequence[Path], at: Path, **window: Any) -> AbstractContextManager[Page]:
    """A tab with the page of some runs."""
    contents = read_contents(paths, "return")
    at.mkdir(parents=True, exist_ok=True)
    return browser.page(write_page(contents, at), **window)


@pytest.mark.parametrize("algo", ["ppo", "cpo"])
def test_a_single_run_has_a_page_of_its_own(browser: Browser, tmp_path: Path, algo: Any) -> None:
    """Without a word of methods or runs to compare; with what each policy is, and what to do next."""
    path = write_run(tmp_path / "runs", algo, iterations=12)
    with show(browser, [path], tmp_path) as page:
        ensemble = ["KL maps", "Coupling"] if algo == "cpo" else []
        policies = ["Policies"] if algo == "cpo" else []
        assert set(texts(page, "#contents a:not([hidden])")) == {"Curves", *policies, *ensemble, "Speed", "Next"}
        (said,) = texts(page, "#summary")
        assert said.startswith(
            f"{algo.upper()} on CartpoleSwingup, seed 0, 12 iterations. In training its leader ends at"
        )
        assert "evaluate it to know what it can do" in said
        assert f"echelon evaluate {path}" in texts(page, "#next-list code")
        assert page.evaluate("getComputedStyle(document.querySelector('aside')).display") == "none"
    write_evaluation(path, 155.0, 12)
    with show(browser, [path], tmp_path) as page:
        (said,) = texts(page, "#summary")
        assert "evaluated over 64 episodes it scores 155.0 with deterministic and 124.0 with sampled actions" in said
        if algo == "cpo":
            rows = texts(page, "#policies-table tbody tr")
            assert len(rows) == 6
            assert rows[0].startswith("0, the leader")
            assert re.findall(r"ends at a return of ([\d.]+)", said)[0] in rows[0]
            assert "139.5" in rows[1]
        assert page.errors == []


def test_unlike_runs_are_not_pooled(browser: Browser, tmp_path: Path) -> None:
    """40, 200 and 400 iterations and three copies of a seed are three runs, compared where the shortest ends."""
    paths = [
        write_run(tmp_path / f"{lines}", "cpo", seed=seed, iterations=lines)
        for seed, lines in enumerate((40, 200, 400))
    ]
    paths += [write_run(tmp_path / f"copy {k}", "cpo", seed=0, iterations=40) for k in range(3)]
    paths += [write_run(tmp_path / "p", "ppo", seed=seed, iterations=40) for seed in range(3)]
    contents = read_contents(paths, "return")
    with show(browser, paths, tmp_path / "page") as page:
        (said,) = texts(page, "#summary")
        assert "at 61.4\u202fk steps" in said
        assert said.count("(n\u00a0=\u00a03)") == 2
        ours = page.evaluate("Report.scoreCells().map((c) => [c.sample.mean, c.sample.runs, c.steps])")
        expected = [[cell.sample.mean, cell.sample.runs, cell.steps] for cell in score_table(contents)]
        assert ours == [pytest.approx(row, rel=1e-4) for row in expected]
        assert page.evaluate("document.querySelectorAll('#curves-charts .band.few').length") == 1  # CPO's alone
        notes = [text for text in texts(page, "#runs-table tbody td") if "repeats seed 0 of" in text]
        assert len(notes) == 3


def test_stopped_runs_score_where_they_stand(browser: Browser, tmp_path: Path) -> None:
    paths = [
        write_run(tmp_path, algo, seed=seed, iterations=30 + 20 * seed, planned=4000)
        for algo in ("ppo", "cpo")
        for seed in range(2)
    ]
    with show(browser, paths, tmp_path / "page") as page:
        (said,) = texts(page, "#summary")
        assert "No run has finished yet: this is provisional" in said
        assert page.evaluate("document.querySelectorAll('#scores-table td.off').length") == 2
        before = texts(page, "#scores-table tbody td")
        page.evaluate("document.getElementById('at').focus()")
        page.press("Home")
        assert texts(page, "#scores-table tbody td") != before
        assert "at 768 steps" in texts(page, "#scores-controls output")  # the hundredth part of 50 iterations
        page.press("End")
        assert texts(page, "#scores-table tbody td") == before


def test_one_run_each_is_no_proof(browser: Browser, tmp_path: Path) -> None:
    """Two tasks, one run of each method, none finished: no interval, nothing bold, no method ahead, no empty tables."""
    levels = {("A", "ppo"): 100.0, ("A", "cpo"): 50.0, ("B", "ppo"): 50.0, ("B", "cpo"): 100.0}
    paths = [write_run(tmp_path, m, task=t, iterations=30, planned=99, level=x) for (t, m), x in levels.items()]
    for path in paths:
        lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
        kept = [{name: x for name, x in line.items() if not name.startswith(("fps", "time"))} for line in lines]
        (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in kept))
    with show(browser, paths, tmp_path / "page") as page:
        (said,) = texts(page, "#summary")
        assert said.startswith("PPO and CPO have the highest mean return on 1 of 2 tasks each.")
        assert page.evaluate("document.querySelectorAll('#improvement-table strong').length") == 0
        assert texts(page, "#improvement-table td small") == ["too few runs"] * 2
        assert texts(page, "#aggregate-table td small") == ["too few runs"] * 2
        assert page.evaluate("document.getElementById('reach').hidden")
        assert page.evaluate("document.getElementById('throughput').hidden")


def test_the_headline_counts_tasks_that_were_contested(browser: Browser, tmp_path: Path) -> None:
    paths = [write_run(tmp_path, "cpo", task=task, seed=s, iterations=9) for task in "ABCD" for s in range(2)]
    paths += [write_run(tmp_path, "ppo", task=task, seed=s, iterations=9) for task in "AB" for s in range(2)]
    with show(browser, paths, tmp_path / "page") as page:
        (said,) = texts(page, "#summary")
        assert "on 2 of the 2 tasks that two or more methods ran" in said
        page.click(".chip")  # A
        (said,) = texts(page, "#summary")
        assert said.startswith("On B, the only task that two or more methods ran, CPO is highest")
        assert "A" not in texts(page, "#scores-table tbody th")
        page.click(".chip:nth-child(2)")
        assert texts(page, "#summary") == ["No task was run by two methods, so none can be called better."]


def test_an_ablation_keeps_its_names_lines_and_pairs(browser: Browser, tmp_path: Path) -> None:
    """Thirteen methods: no two lines alike, a legend with every name, a matrix, and a chart per setting."""
    pulls = [PullConfig(temperature=value) for value in (0.05, 0.1, 0.2, 0.5, 1.0)]
    pulls += [PullConfig(beta=value) for value in (0.01, 0.02, 0.05, 0.1)]
    paths = [write_run(tmp_path / f"p{i}", "cpo", iterations=9, pull=pull) for i, pull in enumerate(pulls)]
    coefs = [AdversaryConfig(coef=value) for value in (0.01, 0.1, 1.0)]
    paths += [write_run(tmp_path / f"a{i}", "cpo", iterations=9, adversary=coef) for i, coef in enumerate(coefs)]
    paths.append(write_run(tmp_path, "ppo", iterations=9))
    with show(browser, paths, tmp_path / "page") as page:
        names = texts(page, "#curves-charts .legend span")
        assert len(names) == 13
        assert "CPO · adversary coef 0.01" in names
        lines = page.evaluate(
            "[...document.querySelectorAll('#curves-charts .line')]"
            ".map((l) => l.getAttribute('class') + l.getAttribute('stroke-dasharray'))"
        )
        assert len(set(lines)) == len(lines) == 13
        assert len(texts(page, "#improvement-table tbody tr")) == 13
        assert len(texts(page, "#scores-table tbody tr")) == 13  # methods in rows
        assert texts(page, "#sweeps-charts figcaption b, #sweeps-charts figcaption")[0].startswith("pull beta")
        assert len(texts(page, "#sweeps-charts .plot")) == 3


def test_deviations_have_the_decimals_of_their_means(page: Page) -> None:
    pairs = [(79374, 0.843), (0.5, 0.0123), (0.0012, 45), (12.345, 6.7), (-3.2, math.nan)]
    said = page.evaluate(f"{json.dumps(pairs).replace('NaN', 'null')}.map(([m, d]) => Report.pair(m, d ?? NaN))")
    assert said == ["79,374 ± 1", "0.500 ± 0.012", "0.0 ± 45.0", "12.3 ± 6.7", "-3.20"]
    assert said == [pair(*one).replace("-3.20", "-3.20") for one in pairs]


@pytest.mark.parametrize("phone", [False, True])
def test_scores_are_on_the_screen(browser: Browser, tmp_path: Path, phone: bool) -> None:
    """Four methods on five tasks: all of them fit 1,400 pixels; a phone shows a first number."""
    paths = [
        write_run(tmp_path, algo, task=task, seed=seed, iterations=9, level=79374.0)
        for algo in ("ppo", "pbt", "sapg", "cpo")
        for task in ("AllegroHand", "DeceptiveReach", "FrankaCubePush", "Hopper", "Humanoid")
        for seed in range(2)
    ]
    with show(browser, paths, tmp_path / "page", width=390 if phone else 1400, height=900, phone=phone) as page:
        texts(page, "#scores-table td")
        edge = page.evaluate("document.querySelector('#scores-table .scroll').getBoundingClientRect().right")
        cell = 2 if phone else 5
        place = f"document.querySelector('#scores-table tbody tr > :nth-child({cell})').getBoundingClientRect().right"
        assert page.evaluate(place) <= edge + 1
        first = "document.querySelector('#scores-table tbody th').getBoundingClientRect().left"
        before = page.evaluate(first)
        page.evaluate("document.querySelector('#scores-table .scroll').scrollTo(999, 0)")
        assert page.evaluate(first) == before  # the first column stays
        assert page.evaluate("document.documentElement.scrollWidth") <= (390 if phone else 1400)


def test_a_link_shows_what_its_sender_saw(browser: Browser, page: Page, written: Written) -> None:
    hide(page, "CartpoleSwingup-sapg-s0")
    page.click("#curves-controls [data-value='gradient_steps']")
    page.click("#theme")
    page.evaluate("Report.choice.at = 40000; Report.changed()")
    link = page.evaluate("location.href")
    summary = texts(page, "#scores-table tbody tr")
    with browser.page(link, width=1300, height=900) as other:
        assert texts(other, "#scores-table tbody tr") == summary
        assert other.evaluate("document.getElementById('shown').textContent") == "19 of 20 shown"
        assert other.evaluate("document.documentElement.dataset.theme") == "dark"
        assert "gradient steps" in texts(other, "#curves-charts text")
    with browser.page(
        f"{written.page.resolve().as_uri()}#hidden=x,99,50-99999999999&axis=nonsense&at=-1&section=nowhere"
    ) as other:
        assert texts(other, "#shown") == ["20"]
        assert other.errors == []


def test_tables_and_charts_are_copied_and_saved(page: Page) -> None:
    texts(page, "#scores-table td")
    for number, start in enumerate((r"\begin{tabular}{lrr}", "| Method |", "Method,CartpoleSwingup,Hopper"), start=1):
        page.evaluate("Report.exported = null")
        page.click(f"#scores-table .export button:nth-of-type({number})")
        page.wait_for("Report.exported")
        assert page.evaluate("Report.exported").startswith(start)
    cells = json.dumps([[{"text": text} for text in ("=1+1", "-2+3", "-2.5 ± 0.1", "<b>|", 'a,"b"')]])
    assert page.evaluate(f"Report.formats.CSV({cells})") == "'=1+1,'-2+3,-2.5 ± 0.1,<b>|," + '"a,""b"""'
    assert "| &lt;b>\\| |" in page.evaluate(f"Report.formats.Markdown({cells})")
    page.click("#curves-charts .export button:nth-of-type(1)")
    page.wait_for("Report.exported.startsWith('<svg')")
    drawing = page.evaluate("Report.exported")
    assert "var(--" not in drawing.replace('style="--', "")
    page.click("#curves-charts .export button:nth-of-type(2)")
    page.wait_for("Report.exported > 5000")


def test_toggles_of_two_hundred_runs_do_not_block(browser: Browser, tmp_path: Path) -> None:
    """Under 0.3 s of the main thread's time each, as the browser counts it; the least of three."""
    paths = [
        write_run(tmp_path, algo, task=f"Task{task}", seed=seed, iterations=20)
        for task in range(10)
        for algo in ("ppo", "pbt", "sapg", "cpo")
        for seed in range(5)
    ]
    toggles = [".method input", ".chip", "[data-value=iqm]", "[data-value=mean]", "#single", "#theme", "#details"]
    with show(browser, paths, tmp_path / "page", width=1400, height=900) as page:
        page.call("Performance.enable", timeDomain="threadTicks")

        def busy() -> float:
            metrics = page.call("Performance.getMetrics")["metrics"]
            return next(one["value"] for one in metrics if one["name"] == "TaskDuration")

        def toggled(selector: str) -> float:
            before = busy()
            page.evaluate(f"document.querySelector({json.dumps(selector)}).click()")
            page.wait_for("!Report.waiting()")
            page.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done, 50)))")
            return busy() - before

        page.wait_for("Report.ready && !Report.waiting()")
        assert page.evaluate("document.documentElement.scrollHeight") < 15_000
        for selector in toggles:
            assert min(toggled(selector) for _ in range(3)) < 0.3, selector
