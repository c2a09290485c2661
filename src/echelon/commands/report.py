"""`echelon report`: one page that shows what runs did, with its figures and tables."""

from dataclasses import dataclass
from pathlib import Path

from echelon.errors import UserError


@dataclass(frozen=True)
class ReportFlags:
    """Flags of `echelon report`."""

    out: str | None = None
    """Folder to write to; a folder named report in the run, or beside several runs, unless given."""
    score: str = "return"
    """What decides which method is better: return, successes, or whatever else the task logs of an episode."""


def run(arguments: list[str]) -> int:
    """Read the runs, write the report."""
    from echelon.console.flags import parse

    asks_help = bool({"-h", "--help"} & set(arguments))
    paths = arguments[: next((i for i, word in enumerate(arguments) if word.startswith("-")), len(arguments))]
    if not asks_help and not paths:
        raise UserError("report needs run folders first, as in echelon report runs/*")
    flags = ["--help"] if asks_help else arguments[len(paths) :]
    given = parse(ReportFlags(), flags, "echelon report RUN...", "Show what runs did, in one page.")

    from echelon.report.write import read_contents, write_report

    contents = read_contents(paths, given.score)
    folders = [run.path.resolve() for run in contents.runs]
    beside = folders[0] if len(folders) == 1 else folders[0].parent
    page = write_report(contents, Path(given.out) if given.out else beside / "report")
    print(f"The report is {page}  (figures and tables beside it)")
    return 0
