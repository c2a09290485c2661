"""What the site makes of equations and of links to files outside docs/."""

import re
import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("latex2mathml", reason="pip install -e '.[docs]' brings it")
DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def site() -> Any:
    return SimpleNamespace(**runpy.run_path(str(DOCS / "site.py")))


def page(name: str) -> SimpleNamespace:
    return SimpleNamespace(file=SimpleNamespace(src_uri=name))


def test_links_that_leave_the_site(site: Any) -> None:
    text = "[`cli`](../../src/echelon/cli.py) [home](../index.md#start) ![hand](../images/Hand.png)"
    links: dict[str | None, str] = {None: '<abbr title="src/echelon/cli.py">`cli`</abbr>'}
    links["https://x/"] = "[`cli`](https://x/blob/main/src/echelon/cli.py)"
    for repository, outside in links.items():
        said = site.on_page_markdown(text, page("tasks/hand.md"), SimpleNamespace(repo_url=repository), None)
        assert said == f"{outside} [home](../index.md#start) ![hand](../images/Hand.png)"


def test_a_trained_policy_is_shown_in_3d(site: Any) -> None:
    at = SimpleNamespace(file=SimpleNamespace(src_uri="tasks/hand.md"), url="tasks/hand/")
    said = site.on_page_markdown("<!-- replay: Hopper -->", at, SimpleNamespace(repo_url=None), None)
    assert 'src="../../replays/Hopper.html"' in said
    site.on_page_markdown("<!-- replay: Hand 1008 -->", at, SimpleNamespace(repo_url=None), None)
    assert site.recorded == {"Hopper": [], "Hand": ["--seed", "1008"]}
    pages = "".join(path.read_text() for path in DOCS.rglob("*.md"))
    named = re.findall(r"<!-- replay: (\w+)", pages)
    assert named
    assert all((DOCS.parent / "results" / "policies" / name / "policy.npz").is_file() for name in named)


def test_equations_are_mathml_and_keep_their_number(site: Any) -> None:
    fence = "```math\na \\le b \\tag{9}\n```"
    fenced = site.on_page_markdown(fence, page("x.md"), SimpleNamespace(repo_url=None), None)
    assert fenced == "$$\na \\le b \\tag{9}\n$$"
    drawn = site.on_page_content('<div class="arithmatex">\\[\na \\le b \\tag{9}\n\\]</div>', page("x.md"), None, None)
    assert drawn.startswith('<div class="equation"><math')
    assert drawn.endswith("</math><span>(9)</span></div>")
    assert "tag" not in drawn
    inline = site.on_page_content(
        '<span class="arithmatex">\\(\\mathbb E[a &lt; b]\\)</span>.', page("x.md"), None, None
    )
    assert "𝔼" in inline
    assert inline.endswith("</math>.</span>")
    assert "&#x0003C;" in inline
    two = '<div class="arithmatex">\\[\na = 1, \\qquad b = -\\tanh x\n\\]</div>'
    drawn = site.on_page_content(two, page("x.md"), None, None)
    assert drawn.startswith('<div class="equation"><div><math')  # the parts, which may stand below each other
    assert drawn.count("</math>") == 2
    assert '<mo form="prefix">' in drawn  # a sign, not a difference
    assert '<mi>tanh</mi><mspace width="0.17em"/><mi>x</mi>' in drawn


def test_code_breaks_where_a_reader_would(site: Any) -> None:
    def drawn(text: str) -> str:
        return site.on_page_content(text, page("x.md"), None, None)

    flag = '<p><code>train <span class="together">--noise.sigma</span> 0.4</code></p>'
    assert drawn("<p><code>train --noise.sigma 0.4</code></p>") == flag
    cell = '<td><code><span class="together">--randomise</span>.<wbr>friction</code> AllegroKuka</td>'
    assert drawn("<td><code>--randomise.friction</code> AllegroKuka</td>") == cell
    assert drawn("<td>AllegroKukaReorientation</td>") == "<td>Allegro<wbr>Kuka<wbr>Reorientation</td>"
    for text in ("<td><code>fps/collect</code> cpo.py a--b</td>", "<pre><code>train --noise.sigma</code></pre>"):
        assert drawn(text) == text


def test_numbers_stay_with_their_units(site: Any) -> None:
    def drawn(text: str) -> str:
        return site.on_page_content(text, page("x.md"), None, None)

    assert drawn("<p>-0.5 to 1 m/s, 86 % of 2 more</p>") == "<p>−0.5 to 1\u00a0m/s, 86\u00a0% of 2 more</p>"
    assert drawn("<p>to 1e-4, off-policy</p>") == '<p>to <span class="together">1e-4</span>, off-policy</p>'
    assert drawn("<td>15, 18</td>") == '<td class="together">15, 18</td>'
    for text in ("<p><code>-0.5 to 1 m 1e-4</code></p>", '<p><a href="x-1 m">walker-v5</a> -> x</p>'):
        assert drawn(text) == text


def test_a_picture_opens_alone(site: Any) -> None:
    picture = '<img alt="a hand" src="../images/Hand.png" />'
    for before, after in (("<p>", "</p>"), ("<td>", " Push</td>")):
        drawn = site.on_page_content(before + picture + after, page("x.md"), None, None)
        assert drawn == f'{before}<a href="../images/Hand.png">{picture}</a>{after}'
    linked = f'<td><a href="hand.md">{picture}</a></td>'
    assert site.on_page_content(linked, page("x.md"), None, None) == linked


def test_every_equation_of_the_pages_can_be_drawn(site: Any) -> None:
    found = 0
    for path in DOCS.rglob("*.md"):
        for source in re.findall(r"```math\n(.*?)```|(?<![\\$\w`])\$([^$\n`]+)\$", path.read_text(), flags=re.DOTALL):
            site.convert("".join(source))
            found += 1
    assert found > 80
