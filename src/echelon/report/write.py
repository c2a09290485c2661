"""Write the report of some runs: one page and two CSV files, and on request figures and tables for papers."""

import csv
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from echelon.console.wording import pair
from echelon.errors import UserError, nearest
from echelon.report.contents import SIGNIFICANCE_LEVEL, Contents
from echelon.report.methods import group_runs
from echelon.report.page import page
from echelon.report.reading import REPORT, find_runs, read_runs
from echelon.runs.durable import replace_durably, writing

TEX = {letter: f"\\{letter}" for letter in "{}$&#_%"} | {"\\": r"\textbackslash{}", "^": r"\^{}", "~": r"\~{}"}
TEX |= {"±": r"$\pm$", "·": r"$\cdot$", "°": r"$^\circ$", "–": "--"}

Row = Sequence[str]
"""Cells of a table for papers; `**` around a text makes it bold."""


def read_contents(paths: Sequence[str | Path], score: str, failures: Mapping[Path, str] | None = None) -> Contents:
    """Read the folders. Raises a `UserError` if none of them holds a run. `failures` says why the run in a folder ended
    early, where this is known."""
    failures = failures or {}
    problems = {str(path): failures[path] for path in map(Path, paths) if path in failures and not path.exists()}
    runs, unread = read_runs(find_runs(path for path in paths if str(path) not in problems))
    problems |= {path: failures.get(Path(path), sentence) for path, sentence in unread.items()}
    if not runs:
        named = "; ".join(f"{path}: {sentence}" for path, sentence in list(problems.items())[:3])
        raise UserError(f"there is no run to report on ({named or 'no folder has one'})")
    metric = f"{score.removesuffix('/leader')}/leader"
    known = dict.fromkeys(name for run in runs for name in run.leader_metrics)
    if metric not in known:
        words = [name.removesuffix("/leader") for name in known]
        hint = nearest(score, words) or f"; there are {', '.join(words)}"
        raise UserError(f"no run logged {score} of its leader{hint}")
    contents = Contents(runs, group_runs(runs), problems, metric)
    for method in contents.methods:
        for run in method.runs:
            run.notes += [failures[run.path]] if run.path in failures else []
            kept = next(other for other in method.counted(run.task) if other.config.seed == run.config.seed)
            if run is not kept:
                run.notes.append(f"repeats seed {run.config.seed} of {kept.name}, so not counted")
    return contents


def write_report(contents: Contents, out: Path, figures: float | None = None) -> Path:
    """Write `index.html`, `runs.csv` and `scores.csv` into `out`, and with `figures`, a width in inches, what papers
    print into `out/figures`; returns the page's path."""
    for path, sentence in contents.problems.items():
        print(f"not in the report: {path}: {sentence}")
    written = write_page(contents, out)
    print(f"The report is {written.resolve().as_uri()}")
    with writing(out, "choose another --out"):
        _write_csv(out / "runs.csv", _runs(contents))
        _write_csv(out / "scores.csv", _scores(contents))
        if figures is not None:
            from echelon.report.figures import write_figures

            print("drawing figures/ ...")
            drawn = write_figures(contents, out / "figures", figures)
            write_table(score_rows(contents), out / "figures" / "scores.tex")
            print(f"{drawn} figures, each as PDF and PNG, and scores.tex")
    return written


def write_page(contents: Contents, out: Path, again: float | None = None) -> Path:
    """Write `index.html` alone; in a browser it looks for a newer one every `again` seconds."""
    with writing(out, "choose another --out"):
        out.mkdir(parents=True, exist_ok=True)
        replace_durably(out / REPORT, page(contents, again).encode())
    return out / REPORT


def _write_csv(path: Path, rows: Iterable[Sequence[Any]]) -> None:
    """Write numbers with seven digits, empty where a value is missing. No clock time is among them, so that a
    comparison that was interrupted and resumed writes the same bytes."""
    with path.open("w", newline="", encoding="utf-8", errors="backslashreplace") as file:
        csv.writer(file, lineterminator="\n").writerows([_csv_cell(value) for value in row] for row in rows)


def _csv_cell(value: Any) -> Any:
    """A text that a spreadsheet would take for a formula gets a ' before it: folder names are untrusted."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.7g}" if math.isfinite(value) else ""
    return f"'{value}" if isinstance(value, str) and value.startswith(tuple("=+-@\t\r\n")) else value


def _runs(contents: Contents) -> Iterator[Sequence[Any]]:
    """A row per run: training metrics of the leader at its end, and its evaluation."""
    metrics = list(dict.fromkeys(name for run in contents.runs for name in run.leader_metrics))
    judged = [f"evaluated_{name.removesuffix('/leader')}" for name in metrics]
    yield ("run", "task", "method", "seed", "policies", "iterations", "env_steps", "finished", *metrics, *judged)
    for method in contents.methods:
        for run in method.runs:
            known = (run.name, run.task, method.name, run.config.seed, run.config.num_policies, run.iterations)
            finals = [run.final(name) for name in metrics]
            yield (*known, int(run.env_steps), run.finished, *finals, *(run.evaluated(name) for name in metrics))


def _scores(contents: Contents) -> Iterator[Sequence[Any]]:
    numbers = ("runs", "mean", "deviation", "iqm", "iqm_low", "iqm_high", "best", "p", "p_holm", "bold")
    yield ("task", "method", "scored_by", "env_steps", "provisional", *numbers)
    for cell in contents.cells.values():
        by = "evaluation" if contents.basis(cell.task).evaluated and not cell.provisional else "training"
        tests = (cell.iqm, *cell.interval, cell.best, cell.p, cell.p_holm, cell.bold)
        one = cell.sample
        yield (cell.task, cell.method, by, cell.steps, cell.provisional, one.runs, one.mean, one.deviation, *tests)


def score_rows(contents: Contents) -> list[Row]:
    """Mean ± deviation (n), a row per task; bold and ° as in the page, parentheses around what is provisional."""
    rows: list[Row] = [["", *(method.name for method in contents.methods)]]
    for task in contents.tasks:
        row = [task]
        for cell in (contents.cells.get((task, method.name)) for method in contents.methods):
            doubtful = " °" if cell and not cell.bold and cell.p < SIGNIFICANCE_LEVEL < cell.p_holm else ""
            text = f"{pair(cell.sample.mean, cell.sample.deviation)} ({cell.sample.runs}){doubtful}" if cell else "–"
            row.append(f"**{text}**" if cell and cell.bold else f"({text})" if cell and cell.provisional else text)
        rows.append(row)
    return rows


def write_table(rows: Sequence[Row], path: Path) -> None:
    """Write a booktabs tabular; `\\usepackage{booktabs}` is all it needs."""

    def line(row: Row) -> str:
        texts = [re.sub(r"[\\^~±·°–{}$&#_%]", lambda found: TEX[found[0]], " ".join(text.split())) for text in row]
        return " & ".join(re.sub(r"^\*\*(.*)\*\*$", r"\\textbf{\1}", text) for text in texts) + r" \\"

    head = [rf"\begin{{tabular}}{{l{'r' * (len(rows[0]) - 1)}}}", r"\toprule", line(rows[0]), r"\midrule"]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*head, *map(line, rows[1:]), r"\bottomrule", r"\end{tabular}", ""]))
