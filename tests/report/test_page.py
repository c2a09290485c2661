"""The page in a real browser: what a reader sees and does. What it shows was computed before."""

import json
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from browser import Browser, Page, browser
from report.conftest import ODD, Written
from report.synthetic import write_evaluation, write_lines, write_run

from echelon.algorithms import AdversaryConfig, PullConfig
from echelon.console.wording import pair
from echelon.report.comparison import headline, improvements
from echelon.report.write import read_contents, write_page
from echelon.runs.evaluations import Axis, Robustness, write_evaluation as write_scores

__all__ = ["browser"]  # a fixture


@contextmanager
def opened(browser: Browser, page: Path, width: int = 1300, **window: Any) -> Iterator[Page]:
    """A tab that fits its window, asks for nothing and has no errors."""
    with browser.page(page, width=width, height=900, **window) as tab:
        tab.wait_for("window.Report?.ready")
        yield tab
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        assert (tab.errors, tab.requests) == ([], [])


@pytest.fixture(scope="module")
def page(browser: Browser, written: Written) -> Iterator[Page]:
    with opened(browser, written.page) as tab:
        yield tab


def show(browser: Browser, paths: Sequence[Path], at: Path) -> AbstractContextManager[Page]:
    """A tab with the page of some runs."""
    return opened(browser, write_page(read_contents(paths, "return"), at))


def texts(page: Page, selector: str) -> list[str]:
    """Text of all elements that match."""
    page.wait_for("window.Report?.ready")
    return page.evaluate(f"[...document.querySelectorAll({json.dumps(selector)})].map((e) => e.textContent)")


def visit(page: Page, address: str) -> None:
    page.call("Page.navigate", url="about:blank")
    page.wait_for("location.href === 'about:blank'")
    page.call("Page.navigate", url=address)


def choose(page: Page, section: str, label: str, value: str) -> None:
    """Choose from a list."""
    place = f"document.querySelector('#{section} [aria-label=\"{label}\"]')"
    page.evaluate(f"(s => {{ s.value = {json.dumps(value)}; s.dispatchEvent(new Event('change')) }})({place})")
    page.wait_for("Report.ready")


GROUND = "getComputedStyle(document.body).backgroundColor"
UNFOLDED = "['#selection', '#speed details'].map((place) => document.querySelector(place).open)"


@pytest.mark.parametrize(("width", "phone", "dark"), [(800, False, True), (390, True, False)])
def test_it_fits_a_small_window(browser: Browser, written: Written, width: int, phone: bool, dark: bool) -> None:
    """The list of runs and most sections are folded."""
    with opened(browser, written.page, width, dark=dark, phone=phone) as page:
        assert (page.evaluate(GROUND) == "rgb(19, 21, 25)") == dark
        assert page.evaluate(UNFOLDED) == [False, False]
        page.evaluate("document.querySelector('#speed details').open = true")
        page.wait_for("document.querySelector('#speed-table tbody tr')")


def test_every_section_is_there_and_shows_what_was_computed(page: Page, written: Written) -> None:
    names = ["Curves", "Replay", "Scores", "All tasks", "Comparison", "KL maps", "Metrics", "Policies", "Speed"]
    assert texts(page, "#contents a:not([hidden])") == [*names, "Settings", "Runs"]
    assert page.evaluate(UNFOLDED) == [True, True]
    assert page.evaluate(GROUND) != "rgb(19, 21, 25)"
    assert texts(page, "#summary") == [headline(written.contents).replace(" = ", "\u00a0=\u00a0")]
    assert len(texts(page, "#curves .uplot canvas")) == 2
    (problem,) = texts(page, "#problems li")
    assert "broken: its config.json cannot be read" in problem
    assert ODD in texts(page, "#runs-table tbody th")
    assert "unfinished: 30 of 60 iterations" in texts(page, "#runs-table tbody td")
    # Equal tables of settings are one, and speed has a row per task and method.
    assert texts(page, "#settings h3") == ["CartpoleSwingup, Hopper"]
    assert len(texts(page, "#speed-table tbody tr")) == 6
    assert "CPO on Hopper, run Hopper-cpo-s1" in texts(page, "#replay .controls")[0]
    assert len(texts(page, "#replay-stage canvas")) == 2  # picture and time line
    page.click("[data-value=details]")
    page.wait_for("document.querySelector('#scores-table').textContent.includes('IQM')")
    methods = [method.name for method in written.contents.methods]
    shown = dict(zip(methods, texts(page, "#scores-table tbody tr"), strict=True))
    for cell in written.contents.cells.values():
        assert f"{pair(cell.sample.mean, cell.sample.deviation)}" in shown[cell.method]
        assert f"n = {cell.sample.runs}" in shown[cell.method]
        assert cell.best or f"p {cell.p:.3f}" in shown[cell.method] or "p < 0.001" in shown[cell.method]
    assert page.evaluate("document.querySelectorAll('#scores-table strong, #improvement-table strong').length") == 0
    rows = dict(zip(methods, texts(page, "#improvement-table tbody tr"), strict=True))
    for one in improvements(written.contents):
        assert f"{one.probability:.2f}too few seeds" in rows[one.method]
    said = [page.evaluate(f"Report.pair({mean}, {deviation})") for mean, deviation in ((79374, 0.843), (0.5, 0.0123))]
    assert page.evaluate("[9.4, 59.7, 3599.6].map(Report.duration)") == ["9 s", "1 min 0 s", "1 h 0 min"]
    assert said == ["79,374 ± 1", "0.500 ± 0.012"] == [pair(79374, 0.843), pair(0.5, 0.0123)]


def test_any_metric_is_drawn_smoothed_and_on_a_log_axis(page: Page) -> None:
    look = "document.querySelector('#diagnostics canvas').toDataURL()"
    choose(page, "diagnostics", "Metric", "loss/7")
    plain = page.evaluate(look)
    assert any(text.startswith("PPO") for text in texts(page, "#diagnostics .u-legend .told"))
    choose(page, "diagnostics", "Smoothing", "20")
    smooth = page.evaluate(look)
    page.click("#diagnostics [data-value=diagnosticsLog]")
    page.wait_for("Report.ready")
    assert len({plain, smooth, page.evaluate(look)}) == 3
    choose(page, "diagnostics", "Metric", "adversary/loss")
    assert any(text.startswith("ln 6: a blind guess") for text in texts(page, "#diagnostics .u-legend .told"))
    choose(page, "policies", "Metric", "sigma")
    assert "follower 5" in texts(page, "#policies .u-legend")[0]


def test_the_names_of_tasks_are_not_broken(page: Page) -> None:
    """A table that is too wide is shifted, rather than its words being cut to pieces."""
    lines = "[...document.querySelectorAll('#runs-table tbody td:nth-child(2)')].map((cell) => { const text ="
    lines += " document.createRange(); text.selectNodeContents(cell); return text.getClientRects().length; })"
    assert set(page.evaluate(lines)) == {1}


def test_the_page_of_a_task_of_ones_own(browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It shows a term of the reward first, says what a log axis cannot show, and its commands name the task's source,
    by which alone it is found."""
    path = write_run(tmp_path, "ppo", task="Robot", source="my robots:Robot", iterations=12)
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    write_lines(path, [line | {"env/reward/effort": -0.1 * line["iteration"]} for line in lines])
    with show(browser, [path], tmp_path / "page") as page:
        assert page.evaluate("document.querySelector('#diagnostics select').value") == "env/reward/effort"
        assert len(texts(page, "#diagnostics canvas")) == 1
        page.click("#diagnostics [data-value=diagnosticsLog]")
        page.wait_for("Report.ready")
        assert texts(page, "#diagnostics canvas") == []
        assert texts(page, "#diagnostics .empty") == ["Robot: no value is above zero, which a log axis needs."]
        look = [f"echelon record {path.name} --format html", f"echelon play {path.name}"]
        again = "echelon compare --tasks 'my robots:Robot' --seeds 5"
        assert texts(page, "#next code") == [f"echelon evaluate {path.name}", *look, again]
    with monkeypatch.context() as patch:
        patch.setattr("echelon.report.page.is_installed", lambda part: False)  # as beside mjlab, which pins MuJoCo 3
        with show(browser, [path], tmp_path / "page") as page:
            assert texts(page, "#next code") == [f"echelon evaluate {path.name}", look[0], again]
    stored = json.loads((path / "config.json").read_text())
    for changes, commands in (
        ({"shown": False}, [f"echelon evaluate {path.name}", again]),  # nothing that is simulated by MuJoCo
        ({"config": stored["config"] | {"source": None}}, ["echelon.evaluate(folder, make_env=...)"]),
    ):
        (path / "config.json").write_text(json.dumps(stored | changes))
        with show(browser, [path], tmp_path / "page") as page:
            assert texts(page, "#next code") == commands


def test_tables_sort_and_curves_change_their_axis_and_tell_their_values(page: Page) -> None:
    column = "#runs-table tbody td:nth-child(5)"
    values = sorted(texts(page, column), key=float)
    page.click("#runs-table thead th:nth-child(5) button")
    assert texts(page, column) == values[::-1]
    assert texts(page, "#runs-table [aria-sort=descending]") == ["Training score"]
    page.press("Enter")  # the button keeps the focus
    assert texts(page, column) == values
    page.evaluate("Report.ready = false")  # until the click has redrawn
    page.click("[data-value='gradient_steps']")
    page.wait_for("Report.ready")
    page.evaluate("document.querySelector('#curves .plot').focus()")
    page.press("Home")
    page.press("End")
    told = texts(page, "#curves .card:first-child .u-series")
    assert told[0].startswith("gradient steps600")
    ticks = page.evaluate("[150, 25_000, 200_000, 1_000_000, 1_600_000].map(Report.tickText)")
    assert [text.replace("\u202f", " ") for text in ticks] == ["150", "25 k", "200 k", "1 M", "1.6 M"]
    assert next(text for text in told if text.startswith("CPO")).endswith("(n = 3)")
    before = page.evaluate("document.querySelector('#curves canvas').toDataURL()")
    page.evaluate("Report.ready = false")
    page.click("[data-value=single]")
    page.wait_for("Report.ready")
    assert page.evaluate("document.querySelector('#curves canvas').toDataURL()") != before


def test_the_slider_moves_every_map_and_plays(page: Page) -> None:
    frames = "[...document.querySelectorAll('#maps .map')].map((m) => Number(m.dataset.frame))"
    assert page.evaluate(frames) == [5, 5]  # cpo and sapg, six measurements
    row = page.evaluate("Report.data.maps.find((m) => m.run === 'CartpoleSwingup-sapg-s0').maps[5]")
    circles = page.evaluate(
        "[...document.querySelectorAll('#maps figure:first-child .nearest')]"
        ".map((c) => [c.cx.baseVal.value, c.cy.baseVal.value])"
    )
    for i in range(6):
        nearest = min((value, j) for j, value in enumerate(row[i]) if j != i)[1]
        assert circles[i] == pytest.approx([38 + (nearest + 0.5) * 40, 38 + (i + 0.5) * 40])
    page.evaluate("document.getElementById('moment').focus()")
    page.press("Home")
    assert page.evaluate(frames) == [0, 0]
    assert page.evaluate("document.getElementById('moment').getAttribute('aria-valuetext')") == "0 environment steps"
    page.click("#play")
    page.wait_for("document.querySelector('#maps .map').dataset.frame > 0")
    page.click("#play")
    paused = page.evaluate("document.getElementById('moment').value")
    assert "Play" in texts(page, "#play")[0]
    page.evaluate("new Promise((done) => setTimeout(done, 200))")
    assert page.evaluate("document.getElementById('moment').value") == paused
    choose(page, "maps", "Seed", "mean")
    assert len(page.evaluate(frames)) == 2


def test_hiding_hides_and_says_that_figures_still_count_it(page: Page) -> None:
    """The last test of this tab: it leaves it elsewhere."""
    name, before = "CartpoleSwingup-sapg-s0", texts(page, "#scores-table tbody tr")
    page.evaluate("document.querySelectorAll('.method details').forEach((one) => { one.open = true; })")
    page.click(f"[data-key='run {name}'] input")
    assert texts(page, "#shown") == ["19 of 20 shown"]
    assert not page.evaluate("document.getElementById('still').hidden")
    assert name not in texts(page, "#runs-table tbody th")
    assert texts(page, "#scores-table tbody tr") == before
    page.click("[data-key='method CPO'] input")  # the only one with a replay
    assert [text.strip() for text in texts(page, "#improvement-table thead th")] == ["row beats column", "PPO", "SAPG"]
    assert page.evaluate("document.getElementById('replay').hidden")
    assert not any("CPO" in text for text in texts(page, "main section:not([hidden]) .body"))
    page.click(".chip")
    assert texts(page, "#curves figcaption") == ["Hopper"]
    link = page.evaluate("location.href")
    visit(page, link)  # what a friend sees who gets the link
    assert texts(page, "#curves figcaption") == ["Hopper"]
    for method in ("PPO", "SAPG"):
        page.click(f"[data-key='method {method}'] input")
    assert texts(page, "#curves .empty") == ["All methods are hidden."]
    words = "#hidden=x&hidden=run%20nobody&axis=nonsense&curvesSmooth=x&curves=nothing"  # of a stranger
    visit(page, link.partition("#")[0] + words)
    assert texts(page, "#shown") == ["20"]


def test_a_single_run_has_a_page_of_its_own(browser: Browser, tmp_path: Path) -> None:
    """Without a word of methods or runs to compare; with what each policy is, and what to do next."""
    sections = {"Curves", "Metrics", "Speed", "Next"}
    path = write_run(tmp_path / "runs", "ppo", iterations=12)
    with show(browser, [path], tmp_path) as page:
        assert set(texts(page, "#contents a:not([hidden])")) == sections
        start = "PPO on CartpoleSwingup, seed 0, 12 iterations. In training its leader ends at"
        assert texts(page, "#summary")[0].startswith(start)
        assert f"echelon evaluate {path.name}" in texts(page, "#next code")
        assert page.evaluate("getComputedStyle(document.querySelector('aside')).display") == "none"
    write_evaluation(path := write_run(tmp_path / "runs", "cpo", iterations=12), 155.0, 12)
    policies = tuple((100.0 + k, 90.0 + k, 10.0 + k) for k in range(6))
    axes = {name: Axis((0.5, 1.0, 1.5), policies) for name in ("mass", "action_delay")}
    write_scores(Robustness(12, 0, 8, "return", (90.0,) * 6, axes), path / "robustness.json")
    with show(browser, [path], tmp_path) as page:
        assert set(texts(page, "#contents a:not([hidden])")) == sections | {"KL maps", "Policies", "Robustness"}
        said = "evaluated over 64 episodes it scores 155.0 with deterministic and 124.0 with sampled actions"
        assert said in texts(page, "#summary")[0]
        rows = texts(page, "#policies-table tbody tr")
        assert (len(rows), rows[0].startswith("0, the leader"), "139.5" in rows[1]) == (6, True, True)
        sentence = "Policy 5 is more robust than the leader: 71.7 against 66.7 over all values, 8 episodes each"
        assert sentence in texts(page, "#robustness p")[-1]
        assert texts(page, "#robustness figcaption") == ["mass", "action delay"]


def test_an_ablation_keeps_its_names_lines_and_settings(browser: Browser, tmp_path: Path) -> None:
    """Thirteen methods: no two lines alike, every name told, a matrix, and methods in rows."""
    pulls = [PullConfig(temperature=value) for value in (0.05, 0.1, 0.2, 0.5, 1.0)]
    pulls += [PullConfig(beta=value) for value in (0.01, 0.02, 0.05, 0.1)]
    paths = [write_run(tmp_path / f"p{i}", "cpo", iterations=9, pull=pull) for i, pull in enumerate(pulls)]
    coefs = [AdversaryConfig(coef=value) for value in (0.01, 0.1, 1.0)]
    paths += [write_run(tmp_path / f"a{i}", "cpo", iterations=9, adversary=coef) for i, coef in enumerate(coefs)]
    paths.append(write_run(tmp_path, "ppo", iterations=9))
    with show(browser, paths, tmp_path / "page") as page:
        names = texts(page, "#curves .u-legend .told")
        assert len(names) == 13
        assert any("CPO · adversary coef 0.01" in name for name in names)
        looks = page.evaluate("Object.values(Report.data.methods).map((m) => JSON.stringify(m))")
        assert len(set(looks)) == 13
        assert len(texts(page, "#improvement-table tbody tr")) == len(texts(page, "#scores-table tbody tr")) == 13


SCRIPTS = (
    *("<img src=x onerror=hacked=1>", "<svg onload=hacked=1>", "<script>hacked=1<&script>", "javascript:hacked=1"),
    *("'\"><img src=x onerror=hacked=1>", "${hacked=1}", "{{hacked=1}}", "-->\u2028<svg onload=hacked=1>"),
    *("]]><svg onload=hacked=1>", "\\u003csvg onload=hacked=1\\u003e"),
)


def test_names_that_are_scripts_are_shown_and_not_run(browser: Browser, tmp_path: Path) -> None:
    """Names of runs, and one of a task. No run has finished, so scores are grey."""
    paths = []
    for seed, name in enumerate(SCRIPTS):
        path = write_run(tmp_path, task="Hopper" if seed else name, seed=seed, iterations=12, planned=4000)
        paths.append(path.rename(tmp_path / name))
    with show(browser, paths, tmp_path / "page") as page:
        (shown,) = texts(page, "#runs-table")
        assert [name for name in SCRIPTS if name not in shown] == []
        assert page.evaluate("typeof hacked") == "undefined"
        assert "No run has finished yet: this is provisional" in texts(page, "#summary")[0]
        assert page.evaluate("document.querySelectorAll('#scores-table td.off').length") == 2
