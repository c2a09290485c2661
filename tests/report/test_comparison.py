"""The tables of a report, against numbers worked out from the scores by hand."""

import json
import math
from pathlib import Path

import pytest
from report.synthetic import write_run

from echelon.report.comparison import SIGNIFICANCE_LEVEL, improvements, reach_table, score_table
from echelon.report.contents import Contents
from echelon.report.methods import group_runs
from echelon.report.palette import COLOURS, colour_numbers
from echelon.report.player import best_runs
from echelon.report.reading import read_run
from echelon.report.significance import student_p


def contents(folder: Path, scores: dict[tuple[str, str], list[float]], planned: int | None = None) -> Contents:
    """Runs whose return rises in equal steps from 0 to `score` over ten iterations, and stays for ten more."""
    runs = []
    for (task, algo), values in scores.items():
        for seed, score in enumerate(values):
            path = write_run(folder, algo, task=task, seed=seed, iterations=20, planned=planned)
            returns = [score * min(1.0, i / 10) for i in range(1, 21)]
            lines = [{"iteration": i, "env_steps": 100 * i, "return/leader": y} for i, y in enumerate(returns, start=1)]
            (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
            runs.append(read_run(path))
    return Contents(runs, group_runs(runs), [], "return/leader")


def test_the_table_of_scores(tmp_path: Path) -> None:
    """A: ppo 1 2 3 against cpo 4 6 8, t = 4/√(1/3 + 4/3), freedom (5/3)²/((1/9 + 16/9)/2) = 50/17.
    B: ppo alone."""
    found = score_table(contents(tmp_path, {("A", "ppo"): [1, 2, 3], ("A", "cpo"): [4, 6, 8], ("B", "ppo"): [5]}))
    by_place = {(cell.task, cell.method): cell for cell in found}
    assert list(by_place) == [("A", "PPO"), ("A", "CPO"), ("B", "PPO")]
    ppo, cpo, alone = by_place.values()
    assert (ppo.sample.mean, ppo.sample.deviation, ppo.sample.runs) == (2, 1, 3)
    assert (cpo.sample.mean, cpo.sample.deviation) == (6, 2)
    assert (ppo.best, cpo.best, alone.best) == (False, True, True)
    assert math.isnan(cpo.p)
    assert ppo.p == pytest.approx(student_p(4 / math.sqrt(5 / 3), 50 / 17))
    assert ppo.p_holm == ppo.p  # the only comparison
    assert ppo.bold
    assert (ppo.iqm, cpo.iqm) == (2, 6)
    assert ppo.interval == (1.0, 3.0)


def test_holm_counts_all_comparisons_of_the_table(tmp_path: Path) -> None:
    """PPO is far off. SAPG differs with t = 4/√(10/5 + 0.625/5) = 2.74 at 4.5 degrees of freedom, just below 0.05: the
    third smallest p of four counts twice and is above it."""
    given: dict[tuple[str, str], list[float]] = {}
    for task in ("A", "B"):
        given |= {(task, "ppo"): [1.0, 2.0, 3.0], (task, "sapg"): [4.0, 6.0, 8.0, 10.0, 12.0]}
        given |= {(task, "cpo"): [11.0, 11.5, 12.0, 12.5, 13.0]}
    found = score_table(contents(tmp_path, given))
    tested = sorted(cell.p for cell in found if not cell.best)
    assert len(tested) == 4
    assert min(cell.p_holm for cell in found if not cell.best) == pytest.approx(4 * tested[0])
    doubtful = [cell for cell in found if not cell.bold and cell.p_holm > SIGNIFICANCE_LEVEL]
    assert {cell.method for cell in doubtful} == {"SAPG"}


def test_unfinished_runs_are_not_scored(tmp_path: Path) -> None:
    assert score_table(contents(tmp_path, {("A", "ppo"): [1, 2]}, planned=21)) == []


def test_improvement_is_averaged_over_tasks(tmp_path: Path) -> None:
    """On A every run of cpo beats every run of ppo: 1. On B of four pairs one is won and one drawn: 3/8."""
    given: dict[tuple[str, str], list[float]] = {("A", "ppo"): [1, 2], ("A", "cpo"): [3, 4]}
    given |= {("B", "ppo"): [2, 3], ("B", "cpo"): [1, 3], ("C", "ppo"): [9]}
    found = {(one.method, one.other): one for one in improvements(contents(tmp_path, given))}
    assert found["CPO", "PPO"].probability == pytest.approx((1 + 3 / 8) / 2)
    assert found["PPO", "CPO"].probability == pytest.approx((0 + 5 / 8) / 2)
    assert found["CPO", "PPO"].interval.high == 1.0
    assert found["CPO", "PPO"].interval.low == pytest.approx(0.5)  # B lost throughout, with probability 1/16 or more


def test_steps_to_reach_the_final_score_of_another(tmp_path: Path) -> None:
    """The mean of cpo rises by 1 per 100 steps to 10, ppo's by 0.5 to 5: reached at 500 of 2000."""
    table = reach_table(contents(tmp_path, {("A", "ppo"): [5], ("A", "cpo"): [10]}))
    found = {(one.method, one.other): one for one in table}
    assert found["CPO", "PPO"].steps == pytest.approx(500, rel=0.01)
    assert found["CPO", "PPO"].share == pytest.approx(0.25, rel=0.01)
    assert math.isnan(found["PPO", "CPO"].steps)


def test_the_best_run_of_each_method_and_winners_first(tmp_path: Path) -> None:
    given: dict[tuple[str, str], list[float]] = {("A", "ppo"): [1, 3, 2], ("A", "cpo"): [5, 4], ("B", "ppo"): [8, 9]}
    given |= {("B", "cpo"): [7], ("C", "ppo"): [6]}
    both = contents(tmp_path, given)
    found = [run.name for run in best_runs(both, lambda run: run.task != "C")]
    assert found == ["A-cpo-s0", "B-ppo-s1", "A-ppo-s1", "B-cpo-s0"]
    found = [run.name for run in best_runs(both, lambda run: run.config.seed == 1)]
    assert found == ["A-cpo-s1", "B-ppo-s1", "A-ppo-s1"]


def test_algorithms_keep_their_colours(tmp_path: Path) -> None:
    both = contents(tmp_path / "both", {("A", "ppo"): [1], ("A", "cpo"): [2]})
    alone = contents(tmp_path / "alone", {("A", "ppo"): [1]})
    assert colour_numbers(both.methods)[0] == colour_numbers(alone.methods)[0]
    many = both.methods * 7
    assert len(set(colour_numbers(many)[: len(COLOURS)])) == len(COLOURS)
    assert max(colour_numbers(many)) < len(COLOURS)
