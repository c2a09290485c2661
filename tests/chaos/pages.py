"""Names that are scripts, in a report opened in a real browser: they are shown, and nothing of them runs."""

import random
from pathlib import Path

from browser import Browser, find_chromium
from chaos.attack import Outcome
from report.synthetic import write_run

from echelon.report.write import read_contents, write_report

SCRIPTS = (
    "<img src=x onerror=hacked=1>",
    "<svg onload=hacked=1>",
    "<script>hacked=1<&script>",
    "'\"><img src=x onerror=hacked=1>",
    "javascript:hacked=1",
    "${hacked=1}",
    "{{hacked=1}}",
    "-->\u2028<svg onload=hacked=1>",
    "]]><svg onload=hacked=1>",
    "\\u003csvg onload=hacked=1\\u003e",
)


def injected(place: Path, tries: int, rng: random.Random) -> Outcome:
    outcome, executable = Outcome(), find_chromium()
    if executable is None:  # apt-get install chromium, or set CHROMIUM to its path
        return outcome
    browser = Browser(executable)
    try:
        for number in range(tries):
            names = rng.sample(SCRIPTS, 3)
            folder = place / str(number)
            paths = []
            for seed, name in enumerate(names):
                path = write_run(folder, task=name if seed == 0 else "Hopper", seed=seed, iterations=12)
                paths.append(path.rename(folder / f"{seed}{name}"))
            page_file = write_report(read_contents(paths, "return"), folder / "report")
            with browser.page(page_file) as page:
                outcome.tries += 1
                outcome.check(page.evaluate("typeof hacked") == "undefined", f"a script ran: {names}")
                outcome.check(page.errors == [], f"{names}: {page.errors}")
                page.wait_for("window.Report?.ready")  # sections are drawn one after the other
                shown = page.evaluate("document.querySelector('#runs-table').textContent")
                outcome.check(all(name.strip() in shown for name in names[1:]), f"a name is not shown: {names}")
    finally:
        browser.close()
    return outcome
