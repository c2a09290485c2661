"""`echelon report`: one page that shows what runs did."""

import time
import webbrowser
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from echelon.commands.command import Command, place
from echelon.config.ranges import Range
from echelon.errors import UserError
from echelon.runs.folder import is_held

if TYPE_CHECKING:
    from echelon.report.contents import Contents


@dataclass(frozen=True)
class Report(Command):
    """Show what runs did, in one page."""

    needs = "run folders first, as in echelon {} runs/*"

    runs: Annotated[tyro.conf.Positional[tuple[str, ...]], place("RUN ...")]
    """The runs, or folders of runs."""
    out: str | None = None
    """Folder to write to; if unset, report/ in the run, or beside several runs."""
    score: str = "return"
    """What decides which method is better: return, successes, or whatever else the task logs of an episode."""
    figures: bool = False
    """Draw figures (PDF, PNG) and a table (LaTeX) for papers too."""
    column: str = "5.5in"
    """Width of the figures in print: 3.25in for one of two columns, 5.5in for one."""
    open: bool = False
    """Open the page in a browser."""
    watch: Annotated[float | None, Range(low=1, high=86_400)] = None
    """Seconds between rewrites of the page while runs are trained."""

    def run(self) -> None:
        width = inches(self.column)

        from echelon.report.write import read_contents, write_page, write_report

        contents = read_contents(self.runs, self.score)
        folders = [run.path.resolve() for run in contents.runs]
        beside = folders[0] if len(folders) == 1 else folders[0].parent
        out = Path(self.out) if self.out else beside / "report"
        address = write_page(contents, out, self.watch).resolve().as_uri() if self.open or self.watch else ""
        if self.open:
            webbrowser.open(address)
        if self.watch:
            print(f"The page is {address}, written again every {self.watch:g} s until all runs have finished")
            try:
                while is_training(contents):
                    time.sleep(self.watch)
                    contents = read_contents(self.runs, self.score)
                    write_page(contents, out, self.watch)
            except KeyboardInterrupt:
                print("No longer watching.")
        write_report(contents, out, figures=width if self.figures else None)


def is_training(contents: "Contents") -> bool:
    """Whether a run has not finished, or is being trained and has logged nothing yet."""
    return not all(run.finished for run in contents.runs) or any(is_held(Path(path)) for path in contents.problems)


def inches(text: str) -> float:
    """A width such as 3.25in."""
    try:
        width = float(text.removesuffix("in"))
    except ValueError:
        width = 0.0
    if not 1.5 <= width <= 20:
        raise UserError(f"--column takes a width in inches from 1.5in to 20in, as in 3.25in, not {text!r}")
    return width
