"""`echelon report`: one page that shows what runs did."""

import time
import webbrowser
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from echelon.errors import UserError

if TYPE_CHECKING:
    from echelon.report.contents import Contents


@dataclass(frozen=True)
class ReportFlags:
    """Flags of `echelon report`."""

    out: str | None = None
    """Folder to write to; a folder named report in the run, or beside several runs, unless given."""
    score: str = "return"
    """What decides which method is better: return, successes, or whatever else the task logs of an episode."""
    figures: bool = False
    """Draw figures (PDF, PNG) and a table (LaTeX) for papers too."""
    column: str = "5.5in"
    """Width of the figures in print: 3.25in for one of two columns, 5.5in for one."""
    open: bool = False
    """Open the page in a browser."""
    watch: float | None = None
    """Write the page again every so many seconds while runs are trained."""


def run(arguments: list[str]) -> int:
    """Read the runs, write the report."""
    from echelon.console.flags import parse

    asks_help = bool({"-h", "--help"} & set(arguments))
    paths = arguments[: next((i for i, word in enumerate(arguments) if word.startswith("-")), len(arguments))]
    if not asks_help and not paths:
        raise UserError("report needs run folders first, as in echelon report runs/*")
    flags = ["--help"] if asks_help else arguments[len(paths) :]
    given = parse(ReportFlags(), flags, "echelon report RUN...", "Show what runs did, in one page.")

    width = inches(given.column)
    if given.watch is not None and not 1 <= given.watch <= 86_400:
        raise UserError(f"--watch takes seconds, from 1 to 86,400, not {given.watch:g}")

    from echelon.report.write import read_contents, write_page, write_report

    contents = read_contents(paths, given.score)
    folders = [run.path.resolve() for run in contents.runs]
    beside = folders[0] if len(folders) == 1 else folders[0].parent
    out = Path(given.out) if given.out else beside / "report"
    if given.open or given.watch:
        address = write_page(contents, out, given.watch).resolve().as_uri()
        if given.open:
            webbrowser.open(address)
        if given.watch:
            print(f"The page is {address}, written again every {given.watch:g} s until all runs have finished")
            contents = _watch(paths, given.score, out, given.watch)
    write_report(contents, out, figures=width if given.figures else None)
    return 0


def _watch(paths: list[str], score: str, out: Path, seconds: float) -> "Contents":
    """Write the page again and again until every run has finished or Ctrl-C; what was read last."""
    from echelon.report.write import read_contents, write_page

    contents = read_contents(paths, score)
    try:
        while not all(run.finished for run in contents.runs):
            time.sleep(seconds)
            contents = read_contents(paths, score)
            write_page(contents, out, seconds)
    except KeyboardInterrupt:
        print("No longer watching.")
    return contents


def inches(text: str) -> float:
    """A width such as 3.25in."""
    try:
        width = float(text.removesuffix("in"))
    except ValueError:
        width = 0.0
    if not 1.5 <= width <= 20:
        raise UserError(f"--column takes a width in inches from 1.5in to 20in, as in 3.25in, not {text!r}")
    return width
