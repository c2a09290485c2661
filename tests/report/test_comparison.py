"""The tables of a report, against numbers worked out from the scores by hand."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from report.synthetic import write_evaluation, write_lines, write_run

from echelon.report.comparison import aggregates, contested, headline, improvements, profile
from echelon.report.contents import SIGNIFICANCE_LEVEL, Basis, Cell, Contents
from echelon.report.page import best_runs
from echelon.report.reading import read_run
from echelon.report.statistics import student_p
from echelon.report.write import read_contents
from echelon.runs.metrics import read_lines

Given = dict[tuple[str, str], list[float]]


def trained(
    folder: Path, algo: str, returns: Sequence[float], seed: int = 0, task: str = "A", planned: int = 0
) -> Path:
    """A run with a return per iteration, 100 environment steps each."""
    path = write_run(folder, algo, task=task, seed=seed, iterations=len(returns), planned=planned or None)
    common = {"gradient_steps": 1, "upright_late/leader": 0.1}
    lines = enumerate(returns, start=1)
    write_lines(path, [{"iteration": i, "env_steps": 100 * i, "return/leader": y} | common for i, y in lines])
    return path


def contents(folder: Path, scores: Given) -> Contents:
    """Runs whose return rises in equal steps from 0 to `score` over ten iterations, and stays for ten more."""
    rise = [min(1.0, i / 10) for i in range(1, 21)]
    for (task, algo), values in scores.items():
        for seed, score in enumerate(values):
            trained(folder, algo, [score * part for part in rise], seed, task)
    return read_contents([folder], "return")


def table(contents: Contents) -> list[Cell]:
    return [*contents.cells.values()]


def test_the_table_of_scores(tmp_path: Path) -> None:
    """A: ppo 1 2 3 against cpo 4 6 8, t = 4/√(1/3 + 4/3), freedom (5/3)²/((1/9 + 16/9)/2) = 50/17.
    B: ppo alone."""
    found = table(contents(tmp_path, {("A", "ppo"): [1, 2, 3], ("A", "cpo"): [4, 6, 8], ("B", "ppo"): [5]}))
    by_place = {(cell.task, cell.method): cell for cell in found}
    assert list(by_place) == [("A", "PPO"), ("A", "CPO"), ("B", "PPO")]
    ppo, cpo, alone = by_place.values()
    assert (ppo.sample.mean, ppo.sample.deviation, ppo.sample.runs) == (2, 1, 3)
    assert (cpo.sample.mean, cpo.sample.deviation) == (6, 2)
    assert (ppo.best, cpo.best, alone.best) == (False, True, True)
    assert math.isnan(cpo.p)
    assert ppo.p == pytest.approx(student_p(4 / math.sqrt(5 / 3), 50 / 17))
    assert ppo.p_holm == ppo.p  # the only comparison
    assert (ppo.iqm, cpo.iqm) == (2, 6)
    assert not any(cell.bold for cell in found)  # fewer than five seeds
    assert np.isnan(ppo.interval).all()


def test_holm_counts_all_comparisons_of_the_table(tmp_path: Path) -> None:
    """PPO is far off. SAPG differs with t = 4/√(10/5 + 0.625/5) = 2.74 at 4.5 degrees of freedom, just below 0.05: the
    third smallest p of four counts twice and is above it."""
    given: Given = {}
    for task in ("A", "B"):
        given |= {(task, "ppo"): [1.0, 1.5, 2.0, 2.5, 3.0], (task, "sapg"): [4.0, 6.0, 8.0, 10.0, 12.0]}
        given |= {(task, "cpo"): [11.0, 11.5, 12.0, 12.5, 13.0]}
    found = table(contents(tmp_path, given))
    tested = sorted(cell.p for cell in found if not cell.best)
    assert len(tested) == 4
    assert min(cell.p_holm for cell in found if not cell.best) == pytest.approx(4 * tested[0])
    doubtful = [cell for cell in found if not cell.bold and cell.p_holm > SIGNIFICANCE_LEVEL]
    assert {cell.method for cell in doubtful} == {"SAPG"}
    assert {cell.method for cell in found if cell.bold} == {"CPO"}
    assert all(cell.interval[0] <= cell.iqm <= cell.interval[1] for cell in found)


def straight(folder: Path, algo: str, seed: int, lines: int, slope: float = 1.0, planned: int = 0) -> Path:
    """A run whose return is `slope` times its iteration."""
    return trained(folder, algo, [slope * i for i in range(1, lines + 1)], seed, planned=planned)


def test_evaluations_decide_where_every_run_has_one(tmp_path: Path) -> None:
    """Training returns end at 98.0 (96 to 100), the mean of the last twentieth; evaluations say 134 to 138."""
    paths = [straight(tmp_path, "cpo", seed, 100) for seed in range(3)]
    for seed, path in enumerate(paths[:2]):
        write_evaluation(path, 134.0 + 2 * seed, 100)
    (cell,) = table(read_contents([tmp_path], "return"))
    assert cell.sample.mean == pytest.approx(98.0)  # one run has none
    write_evaluation(paths[2], 138.0, 100)
    contents = read_contents([tmp_path], "return")
    assert contents.basis("A").evaluated
    (cell,) = table(contents)
    assert cell.sample == pytest.approx((136.0, 2.0, 3))
    (cell,) = table(replace(contents, score="upright_late/leader"))
    assert cell.sample.mean == 0.5
    write_evaluation(paths[2], 138.0, 90)
    contents = read_contents([tmp_path], "return")
    assert not contents.basis("A").evaluated
    assert contents.runs[2].notes == ["evaluated, but not at its end, so not scored by that"]
    (paths[2] / "evaluation.json").write_text('{"iteration": 100, "scores": []}')
    assert read_run(paths[2]).notes == ["its evaluation.json is damaged; run echelon evaluate again"]


def test_runs_of_different_length_are_compared_where_the_shortest_ends(tmp_path: Path) -> None:
    """40, 200 and 400 iterations of three seeds: after 4,000 steps, the mean of iterations 39 and 40. A seed that was
    run again counts once, by its longest run, and the others are named."""
    for seed, lines in enumerate((40, 200, 400)):
        straight(tmp_path / "a", "cpo", seed, lines)
    straight(tmp_path / "b", "cpo", 0, 30)
    straight(tmp_path / "c", "cpo", 0, 40)
    contents = read_contents([tmp_path / name for name in "abc"], "return")
    assert contents.basis("A") == Basis(evaluated=False, steps=4000.0, finished=True)
    (cell,) = table(contents)
    assert (cell.sample.runs, cell.steps) == (3, 4000.0)
    assert cell.sample.mean == pytest.approx(39.5, abs=0.4)  # the longest is thinned to 300 points
    notes = {run.name: run.notes for run in contents.runs}
    assert notes["b/A-cpo-s0"] == ["repeats seed 0 of a/A-cpo-s0, so not counted"] == notes["c/A-cpo-s0"]
    assert notes["a/A-cpo-s0"] == []
    assert contents.bands("A", "return/leader")["CPO"].runs.max() == 3


def test_stopped_runs_have_a_provisional_score(tmp_path: Path) -> None:
    """None has finished: at the 3,000 steps that all have reached, the mean of 29 and 30 is 29.5."""
    for seed, lines in enumerate((30, 50)):
        straight(tmp_path, "cpo", seed, lines, planned=999)
        straight(tmp_path, "ppo", seed, lines, slope=0.5, planned=999)
    both = read_contents([tmp_path], "return")
    ppo, cpo = table(both)
    assert (cpo.provisional, cpo.steps, cpo.best) == (True, 3000.0, True)
    assert cpo.sample.mean == pytest.approx((29.5 + 29.5) / 2)
    assert ppo.sample.mean == pytest.approx(29.5 / 2)
    assert headline(both).endswith("this is provisional, at the steps that all have reached.")
    straight(tmp_path, "sapg", 0, 100)
    cells = {cell.method: cell for cell in table(read_contents([tmp_path], "return"))}
    assert (cells["SAPG"].provisional, cells["SAPG"].best) == (False, True)
    assert (cells["CPO"].provisional, cells["CPO"].best, cells["CPO"].bold) == (True, False, False)
    assert math.isnan(cells["CPO"].p)
    assert improvements(read_contents([tmp_path], "return")) == []  # SAPG has no rival to beat yet


def test_scores_over_all_tasks(tmp_path: Path) -> None:
    """Runs start at a tenth of their score. On A these are 1 2 3 4: mean start 0.25, best mean 3.5, so scores
    (x - 0.25)/3.25. On B 10 20 and 30 50: start 2.75, best 40. C was run by one method and does not count."""
    given: Given = {("A", "ppo"): [1, 2], ("A", "cpo"): [3, 4]}
    given |= {("B", "ppo"): [10, 20], ("B", "cpo"): [30, 50], ("C", "ppo"): [9]}
    both = contents(tmp_path, given)
    assert contested(both) == ["A", "B"]
    ppo, cpo = aggregates(both)
    pooled = [(3 - 0.25) / 3.25, (4 - 0.25) / 3.25, (30 - 2.75) / 37.25, (50 - 2.75) / 37.25]
    assert cpo.iqm == pytest.approx(sum(sorted(pooled)[1:3]) / 2)
    assert ppo.strata[0] == pytest.approx([0.75 / 3.25, 1.75 / 3.25])
    assert profile(cpo.strata, np.array([0.0, 1.0, 2.0])) == pytest.approx([1.0, 0.5, 0.0])
    assert np.isnan(cpo.interval).all()  # two seeds of each task
    for algo in ("ppo", "cpo"):  # a task on which nothing is learned has no scale, and costs the others nothing
        trained(tmp_path, algo, [5, 4, 3], task="D")
    worse = read_contents([tmp_path], "return")
    assert contested(worse) == ["A", "B", "D"]
    assert [len(one.strata) for one in aggregates(worse)] == [2, 2]


def test_improvement_is_averaged_over_tasks(tmp_path: Path) -> None:
    """On A every run of cpo beats every run of ppo: 1. On B of four pairs one is won and one drawn: 3/8."""
    given: Given = {("A", "ppo"): [1, 2], ("A", "cpo"): [3, 4]}
    given |= {("B", "ppo"): [2, 3], ("B", "cpo"): [1, 3], ("C", "ppo"): [9]}
    found = {(one.method, one.other): one for one in improvements(contents(tmp_path, given))}
    assert found["CPO", "PPO"].probability == pytest.approx((1 + 3 / 8) / 2)
    assert found["PPO", "CPO"].probability == pytest.approx((0 + 5 / 8) / 2)
    assert np.isnan(found["CPO", "PPO"].interval).all()
    five = improvements(contents(tmp_path / "five", {("A", "ppo"): [1, 2, 3, 4, 5], ("A", "cpo"): [6, 7, 8, 9, 10]}))
    assert [(one.probability, *one.interval) for one in five] == [(0.0, 0.0, 0.0), (1.0, 1.0, 1.0)]


def test_the_headline_gives_p_and_n(tmp_path: Path) -> None:
    """For 1 2 3 against 4 6 8, t = 4/√(5/3) at 50/17 degrees of freedom: p = 0.055."""
    assert student_p(4 / math.sqrt(5 / 3), 50 / 17) == pytest.approx(0.055, abs=5e-4)
    five: Given = {
        ("A", "ppo"): [1, 2, 3, 4, 5],
        ("A", "cpo"): [11, 12, 13, 14, 15],
        ("B", "ppo"): [9],
        ("B", "cpo"): [8],
    }
    tasks: Given = {(task, algo): [level] * 2 for task in "ABCDE" for algo, level in (("ppo", 1.0), ("cpo", 2.0))}
    cases: list[tuple[Given, list[str]]] = [
        ({("A", "ppo"): [1]}, ["No task was run by two methods, so none can be called better."]),
        (
            {("A", "ppo"): [1], ("A", "cpo"): [3], ("B", "ppo"): [1]},
            ["On A, CPO has the highest training return, 3.00 (n = 1), before PPO with 1.00 (n = 1): single"],
        ),
        (
            {("A", "ppo"): [1, 2, 3], ("A", "cpo"): [4, 6, 8]},
            ["6.00 ± 2.00 (n = 3), before PPO with 2.00 ± 1.00 (n = 3): p = 0.055, too few seeds to tell."],
        ),
        (five, ["PPO and CPO each have the highest mean return on 1 of 2 tasks.", "p < 0.001, beyond chance."]),
        (tasks, ["CPO has the highest mean return on 5 of 5 tasks.", "is beyond chance (p < 0.05) on 0; n = 2."]),
    ]
    for number, (given, sentences) in enumerate(cases):
        said = headline(contents(tmp_path / f"{number}", given))
        assert all(sentence in said for sentence in sentences), said
    for algo, slope, value in (("ppo", 1.0, 50.0), ("cpo", 2.0, 40.0)):
        write_evaluation(straight(tmp_path / "ranks", algo, 0, 100, slope), value, 100)
    assert headline(read_contents([tmp_path / "ranks"], "return")).endswith("In training CPO ends highest.")
    for path in (tmp_path / "ranks").iterdir():  # no episode ended, so no training return is known
        write_lines(path, [line | {"return/leader": None} for line in read_lines(path / "metrics.jsonl")])
        write_evaluation(path, 60.0 if "cpo" in path.name else 50.0, 100)
    assert headline(read_contents([tmp_path / "ranks"], "return")).endswith("single runs prove nothing.")


def test_the_best_run_of_each_method_and_winners_first(tmp_path: Path) -> None:
    given: Given = {("A", "ppo"): [1, 3, 2], ("A", "cpo"): [5, 4], ("B", "ppo"): [8, 9]}
    given |= {("B", "cpo"): [7], ("C", "ppo"): [6]}
    both = contents(tmp_path, given)
    found = [run.name for run in best_runs(both, lambda run: run.task != "C")]
    assert found == ["A-cpo-s0", "B-ppo-s1", "A-ppo-s1", "B-cpo-s0"]
    found = [run.name for run in best_runs(both, lambda run: run.config.seed == 1)]
    assert found == ["A-cpo-s1", "B-ppo-s1", "A-ppo-s1"]
