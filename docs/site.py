"""What the site needs beyond Markdown, called by mkdocs (`hooks` in mkdocs.yml).

Equations become MathML, which browsers draw without a script. Links to files outside docs/ (source, results) lead to
the repository if `repo_url` names one; otherwise their text stays, and names the file under the mouse. Where a page
says `<!-- replay: Hopper -->`, the policy of that name in results/policies is recorded and shown in 3D; a number after
the name is the episode's seed. Code breaks before a flag, never after its dashes, and long names in a table between
their parts; a number stays on one line with its unit. A click on a picture opens it alone, to be read on a phone.
"""

import html
import posixpath
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert

EQUATION = re.compile(r'<(span|div) class="arithmatex">\\[(\[]\n?(.*?)\n?\\[)\]]</\1>', re.DOTALL)
FENCE = re.compile(r"^( *)```math\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
PUNCTUATED = re.compile(r'(\(?)(<math[^>]*display="inline">(?:(?!</math>).)*</math>)([.,;:)]+)', re.DOTALL)
TAG = re.compile(r"\\tag\{(.*?)\}")
PIECE = re.compile(r"<pre.*?</pre>|<td.*?</td>|<code>.*?</code>", re.DOTALL)
CODE = re.compile(r"<code>.*?</code>", re.DOTALL)
WHOLE = re.compile(r"(?<![\w-])--?[A-Za-z][\w-]*(?:\.[\w.-]+)?|'?\.\[[\w,]+\]'?")  # a flag, what pip installs
LONG = re.compile(r"[\w./,{}-]{20,}")  # more than a phone has room for
JOINT = re.compile(r"(?<=\w)[/,.](?=[A-Za-z]\w{4}|\{)")
CAMEL = re.compile(r"\b[A-Z]\w{19,}(?=[<,])")
PICTURE = re.compile(r'(<(?:p|td)\b[^>]*>)(<img [^>]*?src="([^"]+)"[^>]*>)')
NUMBERS = re.compile(r"<td(?=>[\d ,.\N{EN DASH}]{1,14}</td>)")
UNWRITTEN = re.compile(r"(<(?:pre|code|math)\b.*?</(?:pre|code|math)>|<[^>]*>)", re.DOTALL)  # tags, code, equations
MINUS = re.compile(r"(?<![\w-])-(?![&>-])")
UNIT = re.compile(
    r"(?<=\d) (?=(?:%|[GM]|k|GiB|m?s|min|Hz|[cm]?m|rad|N|k?g)(?!\w))|(?<=[\N{MULTIPLICATION SIGN}±]) (?=\d)"
)
RANGE = re.compile(r"\N{MINUS SIGN}?\d[\d.]*(?:e-|\N{EN DASH}|\N{HORIZONTAL ELLIPSIS})\N{MINUS SIGN}?\d+(?:\.\d+)?")
# What the converter leaves to attributes that browsers no longer read, and spaces that operators would get.
LOOKS = (
    (r'<mi mathvariant="double-struck">E</mi>', "<mi>\N{MATHEMATICAL DOUBLE-STRUCK CAPITAL E}</mi>"),
    (r'<mn mathvariant="double-struck">1</mn>', "<mn>\N{MATHEMATICAL DOUBLE-STRUCK DIGIT ONE}</mn>"),
    (r'<mi mathvariant="script">N</mi>', "<mi>\N{MATHEMATICAL SCRIPT CAPITAL N}</mi>"),
    (r"<mi>&#x0007E;</mi>", "<mo>\N{TILDE OPERATOR}</mo>"),
    (r"<mi>&#x02016;</mi>", "<mo>&#x02225;</mo>"),
    (r"<mo>(&#x0007C;|&#x02016;|&#x0002F;)</mo>", r'<mo stretchy="false" lspace="0" rspace="0">\1</mo>'),
    (r"<mi>&#x000B1;</mi>", "<mo>&#x000B1;</mo>"),
    (r"<mi>;</mi>", '<mo separator="true">;</mo>'),
    (r"(</m(?:i|n|sub|sup)>)<mi>(exp|log|tanh)</mi>", r'\1<mspace width="0.17em"/><mi>\2</mi>'),
    (r"<mi>(log|tanh)</mi>(?!<mo|<mn)", r'<mi>\1</mi><mspace width="0.17em"/>'),
    (r"<msup><mi>tanh</mi><mn>2</mn></msup>", r'\g<0><mspace width="0.17em"/>'),
    (r"<mo>(min|max)</mo>(?=<mo)", r'<mo lspace="0" rspace="0">\1</mo>'),
    (r"<mo>(min|max)</mo>", r'<mo lspace="0" rspace="0.17em">\1</mo>'),
    (r"(<mo[^>]*>(?:&#x0003D;|&#x0002C;|&#x00028;|\[)</mo>)<mo>&#x02212;</mo>", r'\1<mo form="prefix">&#x02212;</mo>'),
    (r"</mi></mrow><mi>", r'</mi></mrow><mspace width="0.17em"/><mi>'),
)
REPLAY = re.compile(r"<!-- replay: (\w+)(?: (\d+))? -->")
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(((?:\.\./)+[^)#\s]*)(#[^)]*)?\)")

recorded: dict[str, list[str]] = {}
"""Policies that pages show, and flags of the episode."""


def on_config(config: Any) -> None:
    if config.repo_url:  # mkdocs warns about an edit_uri without one
        config.edit_uri = "edit/main/docs/"


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    folder = posixpath.dirname(page.file.src_uri)

    def link(match: re.Match[str]) -> str:
        text, target = match[1], posixpath.normpath(posixpath.join("docs", folder, match[2]))
        if target.startswith("docs/"):
            return match[0]
        return (
            f"[{text}]({config.repo_url.rstrip('/')}/blob/main/{target})"
            if config.repo_url
            else f'<abbr title="{target}">{text}</abbr>'
        )

    def replay(match: re.Match[str]) -> str:
        recorded[match[1]] = ["--seed", match[2]] if match[2] else []
        up = "../" * page.url.count("/")
        return f'<iframe class="replay" src="{up}replays/{match[1]}.html" title="{match[1]}" loading="lazy"></iframe>'

    markdown = REPLAY.sub(replay, markdown)
    return LINK.sub(link, FENCE.sub(lambda match: f"{match[1]}$$\n{match[2]}{match[1]}$$", markdown))


def on_post_build(config: Any) -> None:
    for name, flags in recorded.items():
        file = Path(config.site_dir) / "replays" / f"{name}.html"
        file.parent.mkdir(exist_ok=True)
        words = ["record", "--policy", name, *flags, "--format", "html", "--out", str(file)]
        subprocess.run([sys.executable, "-m", "echelon", *words], check=True, stdout=subprocess.DEVNULL)


def on_page_content(content: str, page: Any, config: Any, files: Any) -> str:
    content = PUNCTUATED.sub(r'<span class="together">\1\2\3</span>', EQUATION.sub(_equation, content))
    parts = UNWRITTEN.split(PICTURE.sub(r'\1<a href="\3">\2</a>', content))
    parts[::2] = map(_numbers, parts[::2])
    return NUMBERS.sub('<td class="together"', PIECE.sub(_breaks, "".join(parts)))


def _numbers(text: str) -> str:
    """Numbers of a sentence: a minus that is one, and no line that ends within a number or before its unit."""
    text = UNIT.sub("\N{NO-BREAK SPACE}", MINUS.sub("\N{MINUS SIGN}", text))
    return RANGE.sub(r'<span class="together">\g<0></span>', text)


def _breaks(match: re.Match[str]) -> str:
    """Where code may break, in a paragraph or a table's cell. Blocks of code scroll."""
    piece = match[0]
    if piece.startswith("<td"):
        piece = CAMEL.sub(lambda name: re.sub(r"(?<=[a-z])(?=[A-Z])", "<wbr>", name[0]), piece)
        piece = CODE.sub(lambda code: LONG.sub(lambda name: JOINT.sub(r"\g<0><wbr>", name[0]), code[0]), piece)
    if not piece.startswith("<pre"):
        piece = CODE.sub(lambda code: WHOLE.sub(r'<span class="together">\g<0></span>', code[0]), piece)
    return piece


def _equation(match: re.Match[str]) -> str:
    source, block = html.unescape(match[2]), match[1] == "div"
    number = TAG.search(source)
    if not block:
        return _mathml(source, display="inline")
    parts = TAG.sub("", source).split(r"\qquad")  # side by side, on a phone below each other
    mathml = "".join(_mathml(part, display="block") for part in parts)
    mathml = f"<div>{mathml}</div>" if len(parts) > 1 else mathml
    return f'<div class="equation">{mathml}{f"<span>({number[1]})</span>" if number else ""}</div>'


def _mathml(source: str, display: str) -> str:
    mathml = convert(source, display=display)
    for found, better in LOOKS:
        mathml = re.sub(found, better, mathml)
    return mathml
