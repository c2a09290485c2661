"""The report of some runs: one HTML file, with figures and tables beside it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from echelon.errors import UserError, nearest
from echelon.report.contents import Contents, once
from echelon.report.methods import Method, group_runs
from echelon.report.page_file import page
from echelon.report.payload import leader_metrics, payload
from echelon.report.player import find_replays
from echelon.report.reading import REPORT, Problem, find_runs, read_runs
from echelon.runs.durable import replace_durably

COLUMN_INCHES = 5.5
"""Width of figures unless another is asked for: the text of a paper in one column."""


def read_contents(paths: Sequence[str | Path], score: str, failures: Mapping[Path, str] | None = None) -> Contents:
    """Read the folders. Raises a `UserError` if none of them holds a run.

    `failures` says why the run in a folder ended early, where this is known.
    """
    failures = failures or {}
    missing = [Problem(str(path), failures.get(Path(path), "")) for path in paths if not Path(path).exists()]
    missing = [problem for problem in missing if problem.sentence]
    named = {problem.path for problem in missing}
    runs, problems = read_runs(find_runs(path for path in paths if str(path) not in named))
    problems = [*missing, *(_explained(problem, failures) for problem in problems)]
    for run in runs:
        if run.path in failures:
            run.notes.append(failures[run.path])
    if not runs:
        named = "; ".join(f"{problem.path}: {problem.sentence}" for problem in problems[:3])
        raise UserError(f"there is no run to report on ({named or 'no folder has one'})")
    metric = f"{score.removesuffix('/leader')}/leader"
    known = dict.fromkeys(name for run in runs for name in leader_metrics(run))
    if metric not in known:
        words = [name.removesuffix("/leader") for name in known]
        raise UserError(
            f"no run logged {score} of its leader{nearest(score, words) or '; there are ' + ', '.join(words)}"
        )
    methods = group_runs(runs)
    for method in methods:
        _name_repeats(method)
    return Contents(runs, methods, problems, metric)


def _name_repeats(method: Method) -> None:
    """Note on every run that repeats a seed which one counts instead."""
    for task in dict.fromkeys(run.task for run in method.runs):
        counted = {run.config.seed: run for run in once(method.on(task))}
        for run in method.on(task):
            kept = counted[run.config.seed]
            if run is not kept:
                run.notes.append(f"repeats seed {run.config.seed} of {kept.name}, so not counted")


def _explained(problem: Problem, failures: Mapping[Path, str]) -> Problem:
    """The problem with the reason from `failures`, if there is one."""
    reason = failures.get(Path(problem.path))
    return problem if reason is None else Problem(problem.path, reason)


def write_report(
    contents: Contents, out: Path, say: Callable[[str], None] = print, width: float = COLUMN_INCHES
) -> Path:
    """Write `report.html`, then `csv/`, `tables/` and `figures/`, `width` inches wide, into `out`; returns the page's
    path. What is slow comes last, and `say` is told of it."""
    from echelon.report.csv_files import write_csv_files
    from echelon.report.figures import write_figures
    from echelon.report.tables import write_tables

    for problem in contents.problems:
        say(f"not in the report: {problem.path}: {problem.sentence}")
    with _writing(out):
        written = write_page(contents, out)
        say(f"The report is {written.resolve().as_uri()}")
        write_csv_files(contents, out / "csv")
        write_tables(contents, out / "tables")
        say("tables/ and csv/ are beside it; drawing figures/ ...")
        drawn = write_figures(contents, out / "figures", width)
        say(f"{drawn} figures, each as PDF, SVG and PNG")
    return written


def write_page(contents: Contents, out: Path, again: float | None = None) -> Path:
    """Write `report.html` alone; in a browser it looks for a newer one every `again` seconds."""
    with _writing(out):
        out.mkdir(parents=True, exist_ok=True)
        data = payload(contents) | ({"again": again} if again else {})
        replace_durably(out / REPORT, page(data, find_replays(contents), _heading(contents)).encode())
    return out / REPORT


@contextmanager
def _writing(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(f"the report cannot be written to {out}: {error.strerror}; choose another --out") from None


def _heading(contents: Contents) -> str:
    """The page's title."""
    if len(contents.runs) == 1:
        return contents.runs[0].name
    methods = " · ".join(method.name for method in contents.methods) if len(contents.methods) <= 6 else "Comparison"
    tasks = contents.tasks
    return f"{methods} on {tasks[0] if len(tasks) == 1 else f'{len(tasks)} tasks'}"
