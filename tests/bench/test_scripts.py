"""Every script answers a question that a page asks."""

from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_script_is_named_on_a_page() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "results").rglob("README.md")]
    text = "\n".join(page.read_text() for page in pages)
    scripts = [path for path in (ROOT / "benchmarks").rglob("*.py") if "__main__" in path.read_text()]
    scripts += (ROOT / "results").rglob("run.py")
    assert [str(path) for path in scripts if str(path.relative_to(ROOT)) not in text] == []
