"""Tables for papers: scores with significance, coupling, settings; LaTeX (booktabs) and Markdown."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from echelon.report.comparison import SIGNIFICANCE_LEVEL, Cell, score_table
from echelon.report.contents import Contents
from echelon.report.payload import merged_settings
from echelon.report.reading import Run
from echelon.report.significance import Sample, sample

COUPLING = {"is_deviation": "IS deviation", "ess": "ESS"}
TEX = {letter: f"\\{letter}" for letter in "{}$&#_%"} | {"\\": r"\textbackslash{}", "^": r"\^{}", "~": r"\~{}"}
TEX |= {"±": r"$\pm$", "·": r"$\cdot$", "°": r"$^\circ$", "–": "--"}


@dataclass(frozen=True)
class Entry:
    """A cell of a table."""

    text: str
    bold: bool = False


@dataclass(frozen=True)
class Table:
    """Heads, rows and what there is to say about them."""

    heads: list[str]
    rows: list[list[Entry]]
    caption: str


def write_tables(contents: Contents, folder: Path) -> None:
    """Write each table that the runs have data for as `NAME.tex` and `NAME.md`."""
    folder.mkdir(parents=True, exist_ok=True)
    tables = {"scores": scores(contents), "coupling": coupling(contents), **_settings(contents)}
    for name, table in tables.items():
        if table.rows:
            write_table(table, folder / name)


def write_table(table: Table, path: Path) -> None:
    """Write `path` with the endings tex and md."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_name(f"{path.name}.tex").write_text(latex(table))
    path.with_name(f"{path.name}.md").write_text(markdown(table))


def scores(contents: Contents) -> Table:
    """Mean ± deviation per task and method; methods in rows where they outnumber tasks."""
    cells = {(cell.task, cell.method): cell for cell in score_table(contents)}
    methods, tasks = [method.name for method in contents.methods], contents.tasks
    table = [[_score(cells.get((task, name))) for name in methods] for task in tasks]
    caption = (
        f"{contents.score.removesuffix('/leader').replace('_', ' ').capitalize()} of the leader, mean ± deviation over "
        "runs, their number in brackets. " + " ".join(f"{task}: {basis_words(contents, task)}." for task in tasks) + " "
        "Bold: the best mean of a task, and all with p > 0.05 against it by Welch's t-test. °: no longer different "
        "after Holm's correction over the table. In parentheses: provisional, of runs that have not finished."
    )
    if len(methods) > len(tasks):
        rows = [[Entry(name), *(row[k] for row in table)] for k, name in enumerate(methods)]
        return Table(["", *tasks], rows, caption)
    return Table(["", *methods], [[Entry(task), *row] for task, row in zip(tasks, table, strict=True)], caption)


def basis_words(contents: Contents, task: str) -> str:
    """How the scores of a task were measured, in words."""
    basis = contents.basis(task)
    words = "evaluated at the end of training" if basis.evaluated else "training return"
    return words if basis.steps is None else f"{words} at {basis.steps:,.0f} environment steps"


def _score(cell: Cell | None) -> Entry:
    if cell is None:
        return Entry("–")
    doubtful = " °" if not cell.bold and cell.p_holm > SIGNIFICANCE_LEVEL else ""
    text = f"{pair(cell.sample.mean, cell.sample.deviation)} ({cell.sample.runs}){doubtful}"
    return Entry(f"({text})" if cell.provisional else text, cell.bold and not cell.provisional)


def coupling(contents: Contents) -> Table:
    """IS deviation and effective sample size at the end of training."""
    rows = [
        [Entry(task), Entry(name), *(Entry(pair(one.mean, one.deviation)) for one in samples)]
        for task, name, samples in coupling_samples(contents)
    ]
    caption = (
        "Importance weights of followers' actions under the leader when last measured, mean ± deviation over runs."
    )
    return Table(["Task", "Method", *COUPLING.values()], rows, caption)


def coupling_samples(contents: Contents) -> list[tuple[str, str, list[Sample]]]:
    """Task, method, and a sample of each quantity when last measured, where one was."""
    found = [
        (task, method.name, [_measured(contents.counted(method, task), name) for name in COUPLING])
        for task in contents.tasks
        for method in contents.methods
    ]
    return [row for row in found if any(one.runs for one in row[2])]


def _measured(runs: Sequence[Run], metric: str) -> Sample:
    """The last measured value of each run."""
    columns = [run.columns[metric] for run in runs if metric in run.columns]
    return sample([column[np.isfinite(column)][-1] for column in columns if np.isfinite(column).any()])


def _settings(contents: Contents) -> dict[str, Table]:
    """Settings in which methods differ; tasks with equal tables share one."""
    found = {}
    merged = merged_settings(contents)
    for number, one in enumerate(merged):
        name = "settings" if len(merged) == 1 else f"settings_{number + 1}"
        rows = [[Entry(str(value)) for value in row] for row in one["rows"]]
        found[name] = Table(["Setting", *one["methods"]], rows, f"What differs on {', '.join(one['tasks'])}.")
    return found


def pair(mean: float, deviation: float) -> str:
    """`79,374 ± 1`: both to the same decimals, three digits of the larger that matter, four from a hundred on."""
    if not math.isfinite(mean):
        return "–"
    size = max(abs(mean), deviation if math.isfinite(deviation) else 0.0)
    if size != 0 and (size >= 1e7 or size < 1e-3):
        return f"{mean:.1e}" + (f" ± {deviation:.1e}" if math.isfinite(deviation) else "")
    decimals = 0 if size == 0 else max(0, 2 - math.floor(math.log10(size)) + (size >= 100))
    return f"{mean:,.{decimals}f}" + (f" ± {deviation:,.{decimals}f}" if math.isfinite(deviation) else "")


def latex(table: Table) -> str:
    """A booktabs tabular; `\\usepackage{booktabs}` is all it needs."""

    def line(cells: Sequence[Entry]) -> str:
        return " & ".join(rf"\textbf{{{_tex(cell.text)}}}" if cell.bold else _tex(cell.text) for cell in cells) + r" \\"

    body = [line([Entry(head) for head in table.heads]), r"\midrule", *map(line, table.rows)]
    begin = rf"\begin{{tabular}}{{l{'r' * (len(table.heads) - 1)}}}"
    lines = [f"% {' '.join(table.caption.split())}", begin, r"\toprule", *body, r"\bottomrule", r"\end{tabular}"]
    return "\n".join(lines) + "\n"


def _tex(text: str) -> str:
    """Text that LaTeX prints as it is: names of tasks and folders are anybody's."""
    return re.sub(r"[\\^~±·°–{}$&#_%]", lambda found: TEX[found[0]], " ".join(text.split()))


def markdown(table: Table) -> str:
    """A table in Markdown, its caption below."""

    def line(cells: Sequence[Entry]) -> str:
        words = (f"**{cell.text}**" if cell.bold else cell.text for cell in cells)
        return "| " + " | ".join(_md(word) for word in words) + " |"

    head = line([Entry(head) for head in table.heads])
    rule = "|---|" + "---:|" * (len(table.heads) - 1)
    return "\n".join([head, rule, *map(line, table.rows), "", _md(table.caption), ""])


def _md(text: str) -> str:
    """Text in one line, without a place for HTML."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
