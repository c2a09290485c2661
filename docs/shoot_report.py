"""Take the pictures of docs/report.md: `python docs/shoot_report.py report/index.html`, with a Chromium installed."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))

from browser import Browser, Page, find_chromium  # noqa: E402  # found beside the tests

SHOTS = {
    # name: section at the top, width, height, dark, phone
    "report-light": ("main", 1360, 1160, False, False),
    "report-scores": ("replay", 1360, 1500, False, False),
    "report-dark": ("maps", 1360, 1330, True, False),
    "report-phone": ("main", 390, 1000, False, True),
    "report-phone-dark": ("curves", 390, 1000, True, True),
}


def settle(page: Page, section: str) -> None:
    """Scroll to a section, and let what moves begin to."""
    page.evaluate("document.documentElement.style.scrollBehavior = 'auto'")
    if section != "main":
        page.evaluate(f"document.getElementById('{section}').scrollIntoView()")
    page.evaluate("new Promise((done) => setTimeout(done, 1500))")


def main() -> None:
    report, chromium = Path(sys.argv[1]), find_chromium()
    if chromium is None:
        sys.exit("no Chromium here; apt-get install chromium")
    browser = Browser(chromium)
    try:
        for name, (section, width, height, dark, phone) in SHOTS.items():
            with browser.page(report, width, height, dark, phone) as page:
                page.wait_for("window.Report?.ready")
                settle(page, section)
                page.screenshot(HERE / "images" / f"{name}.png")
    finally:
        browser.close()


if __name__ == "__main__":
    main()
