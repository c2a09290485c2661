"""Scripts and the pages that name them."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "results").rglob("README.md")]
NAMED = re.compile(r"(\w+:)?benchmarks/([\w/]+\.py)")
"""After a colon it is a file of an earlier revision."""


def test_every_script_that_a_page_names_exists_and_every_script_is_named() -> None:
    named = {path for page in PAGES for revision, path in NAMED.findall(page.read_text()) if not revision}
    scripts = {
        str(path.relative_to(ROOT / "benchmarks"))
        for path in (ROOT / "benchmarks").rglob("*.py")
        if "__main__" in path.read_text()
    }
    assert scripts - named == set()
    assert [path for path in named if not (ROOT / "benchmarks" / path).exists()] == []
