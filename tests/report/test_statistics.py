"""Statistics of scores and curves against numbers worked out by hand, and the paper's own table."""

import math

import numpy as np
import pytest

from echelon.report.paper import TABLE_1
from echelon.report.statistics import (
    GRID_POINTS,
    Sample,
    Scores,
    at_step,
    bands,
    bootstrap_interval,
    holm,
    interquartile_mean,
    probability_of_improvement,
    sample,
    student_p,
    thin,
    welch,
)


def mean(*strata: Scores) -> Scores:
    return np.concatenate(strata, axis=-1).mean(axis=-1)


def test_interquartile_mean_by_hand() -> None:
    assert interquartile_mean([7.0]) == 7.0
    assert interquartile_mean([1.0, 2.0, 9.0]) == 4.0  # a quarter of 3 is no run: nothing is cut
    assert interquartile_mean([100.0, 2.0, 3.0, -50.0]) == 2.5  # one at each end
    assert interquartile_mean([0.0, 1.0, 2.0, 3.0, 100.0]) == 2.0  # a quarter of 5, rounded down: (1 + 2 + 3)/3
    assert interquartile_mean(np.arange(8.0)) == 3.5  # (2 + 3 + 4 + 5)/4
    # Strata are pooled, and the last dimension reduced. Sorted: 0 1 | 2 3 4 10 | 20 30, hence 19/4.
    assert interquartile_mean([0.0, 10.0, 20.0, 30.0], [1.0, 2.0, 3.0, 4.0]) == pytest.approx(4.75)
    table = np.array([[4.0, 1.0, 3.0, 2.0], [0.0, 0.0, 8.0, 8.0]])
    np.testing.assert_allclose(interquartile_mean(table), [2.5, 4.0])


def test_probability_of_improvement_by_hand() -> None:
    """1 loses to both, 2 draws with both, 3 beats both: (0 + 0 + ½ + ½ + 1 + 1)/6."""
    assert probability_of_improvement([1.0, 2.0, 3.0], [2.0, 2.0]) == pytest.approx(0.5)
    assert probability_of_improvement([5.0, 6.0], [1.0, 2.0, 3.0]) == 1.0
    assert probability_of_improvement([1.0, 4.0], [2.0, 3.0, 5.0]) == pytest.approx(2 / 6)


def test_bootstrap_of_two_runs_by_hand() -> None:
    """Resamples of [0, 1] have mean 0, ½, 1 with probability ¼, ½, ¼. So 95 % need all of it, and 40 % only the ½."""
    assert bootstrap_interval([0.0, 1.0], statistic=mean) == (0.0, 1.0)
    assert bootstrap_interval([0.0, 1.0], statistic=mean, confidence=0.4) == (0.5, 0.5)
    # Each stratum is constant, so every resample has mean ½; mixing the strata would not.
    assert bootstrap_interval([0.0] * 3, [1.0] * 3, statistic=mean) == (0.5, 0.5)
    # P(X > Y) of [0, 2] against [1]: ½; a resample has 0, 1 or 2 winners of 2, with probability ¼, ½, ¼.
    assert bootstrap_interval([0.0, 2.0], [1.0], statistic=probability_of_improvement) == (0.0, 1.0)
    assert bootstrap_interval([0.0, 2.0], [1.0], statistic=probability_of_improvement, confidence=0.4) == (0.5, 0.5)
    assert np.isnan(bootstrap_interval([3.0], [4.0])).all()  # one run each
    assert np.isfinite(bootstrap_interval([3.0], [4.0, 5.0])).all()
    scores = np.arange(20.0) ** 2
    assert bootstrap_interval(scores, seed=3) == bootstrap_interval(scores, seed=3)
    assert bootstrap_interval(scores, seed=3) != bootstrap_interval(scores, seed=4)


def test_bootstrap_intervals_cover_at_the_stated_rate() -> None:
    """About 80 % of 400 intervals at 80 % hold the truth; the share's own deviation is 2 %, and an interval from 60
    runs is a little short."""
    generator = np.random.default_rng(0)
    held = 0
    for trial in range(400):
        low, high = bootstrap_interval(
            generator.normal(3.0, 1.0, 30), generator.normal(-3.0, 2.0, 30), statistic=mean, confidence=0.8,
            resamples=400, seed=trial,
        )  # fmt: skip
        held += low <= 0.0 <= high
    assert 0.74 <= held / 400 <= 0.85


BOLD = ("0001", "0001", "0111", "0001", "0011", "0101")
"""What the paper prints in bold, by task and then PPO, PBT, SAPG, CPO."""


def test_the_papers_table_gives_its_own_bold_marks() -> None:
    """Read as deviations of a population, they would make PBT on AllegroHand bold, which it is not."""
    for (task, row), marks in zip(TABLE_1.items(), BOLD, strict=True):
        samples = [Sample(mean, deviation, 5) for mean, deviation in row]
        best = max(samples)
        bold = [one is best or welch(one, best) > 0.05 for one in samples]
        assert bold == [mark == "1" for mark in marks], task
    pbt, cpo = (Sample(mean, deviation * math.sqrt(5 / 4), 5) for mean, deviation in TABLE_1["AllegroHand"][1::2])
    assert welch(pbt, cpo) > 0.05


def test_students_distribution() -> None:
    """In closed form: ν = 1 is Cauchy's, ν = 2 and ν = 4 have algebraic distribution functions. Others by quadrature: 1
    minus the density's integral over [-t, t], by Simpson's rule."""
    for t in (0.0, 0.3, 1.0, 2.5, 12.0):
        assert student_p(t, 1) == pytest.approx(1 - 2 / math.pi * math.atan(t), abs=1e-13)
        assert student_p(-t, 2) == pytest.approx(1 - t / math.sqrt(2 + t * t), abs=1e-13)
        y = t / math.sqrt(4 + t * t)
        assert student_p(t, 4) == pytest.approx(1 - 1.5 * y + 0.5 * y**3, abs=1e-13)
    for t, freedom in ((1.3, 4.58), (2.9, 7.3), (0.2, 33.0), (1.96, 5000.0)):
        x = np.linspace(-t, t, 20_001)
        front = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(freedom * math.pi)
        density = front * (1 + x * x / freedom) ** (-(freedom + 1) / 2)
        weights = np.where(np.arange(len(x)) % 2, 4.0, 2.0)
        weights[[0, -1]] = 1
        assert student_p(t, freedom) == pytest.approx(1 - float(weights @ density) * (x[1] - x[0]) / 3, abs=1e-10)


def test_welch_by_hand() -> None:
    """Variances of means 4/2 = 2 and 9/3 = 3, so t = 10/√5; freedom 25/(4/1 + 9/2) = 50/17."""
    assert welch(Sample(10, 2, 2), Sample(0, 3, 3)) == student_p(10 / math.sqrt(5), 50 / 17)
    a, b = sample([1.0, 3.0]), sample([2.0, 6.0])  # variances 2 and 8, t = -2/√5, freedom 25/(1 + 16)
    assert (a, b) == (Sample(2.0, math.sqrt(2), 2), Sample(4.0, math.sqrt(8), 2))
    assert welch(a, b) == pytest.approx(student_p(2 / math.sqrt(5), 25 / 17), rel=1e-12)
    # without spread, and single runs, which are no test
    assert welch(Sample(1, 0, 3), Sample(1, 0, 3)) == 1.0
    assert welch(Sample(1, 0, 3), Sample(2, 0, 3)) == 0.0
    assert math.isnan(welch(sample([1.0]), sample([2.0, 3.0])))
    assert math.isnan(sample([1.0]).deviation)
    assert math.isnan(sample([]).mean)


def test_holm_by_hand() -> None:
    """Sorted 0.01 0.02 0.03 0.5 times 4 3 2 1: 0.04 0.06 0.06 0.5; each at least the one before."""
    assert holm([0.02, 0.5, 0.01, 0.03]) == pytest.approx([0.06, 0.5, 0.04, 0.06])
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.7, 0.8]) == [1.0, 1.0]
    assert holm([]) == []
    first, missing, last = holm([0.02, math.nan, 0.04])
    assert (first, last) == pytest.approx((0.04, 0.04))
    assert math.isnan(missing)


def test_a_band_of_two_runs() -> None:
    x = np.array([0.0, 10.0])
    curves = {"a": {"0": (x, np.array([0.0, 10.0])), "1": (x, np.array([4.0, 14.0]))}}
    found, unsure = bands(curves, min_runs=2)["a"], bands(curves)["a"]
    assert np.isnan(unsure.low).all()  # two runs are too few for an interval
    np.testing.assert_allclose(found.x, np.linspace(0, 10, GRID_POINTS))
    np.testing.assert_allclose(found.mean, found.x + 2)
    np.testing.assert_allclose(found.deviation, math.sqrt(8))
    np.testing.assert_allclose(found.iqm, found.x + 2)
    # A resample is twice the lower run, both, or twice the upper, with probability ¼, ½, ¼.
    np.testing.assert_allclose(found.low, found.x)
    np.testing.assert_allclose(found.high, found.x + 4)


def test_where_a_run_is_shorter_the_others_count_alone() -> None:
    long = (np.array([0.0, 10.0]), np.array([1.0, 1.0]))
    short = (np.array([0.0, 5.0]), np.array([3.0, 3.0]))
    late = (np.array([8.0, 10.0]), np.array([7.0, 7.0]))
    found = bands({"a": {"long": long, "short": short, "late": late}})["a"]
    for low, high, mean, deviation, runs in (
        (0, 5, 2, math.sqrt(2), 2),
        (5.1, 7.9, 1, 0, 1),
        (8, 10, 4, math.sqrt(18), 2),
    ):
        part = (found.x >= low) & (found.x <= high)
        np.testing.assert_allclose(found.mean[part], mean)
        np.testing.assert_allclose(found.deviation[part], deviation)
        np.testing.assert_allclose(found.runs[part], runs)


def test_gaps_are_bridged_and_empty_curves_ignored() -> None:
    x = np.array([0.0, 1.0, 2.0])
    empty = {"empty": (x, np.full(3, math.nan)), "point": (x, np.array([1.0, math.nan, math.nan]))}
    found = bands({"a": {"gap": (x, np.array([0.0, math.nan, 4.0]))} | empty, "b": empty, "c": {}})
    assert [*found] == ["a"]
    assert [*found["a"].single] == ["gap"]
    np.testing.assert_allclose(found["a"].mean, 2 * found["a"].x)
    assert bands({"b": empty}) == {}


def test_a_score_at_a_step_averages_the_last_twentieth_before_it() -> None:
    x, y = np.arange(1.0, 101.0), np.arange(1.0, 101.0)
    assert at_step(x, y, 100.0) == pytest.approx(98.0)  # 96 to 100
    assert at_step(x, y, 40.0) == pytest.approx(39.5)  # 39 and 40
    assert at_step(x, y, 10.5) == 10.0
    y[9] = math.nan
    assert at_step(x, y, 10.5) == 9.0  # nothing in the last twentieth: the last before
    assert math.isnan(at_step(x, y, 0.5))
    # Thinning averages equal shares.
    column = np.array([1.0, 3.0, 5.0, math.nan, math.nan, math.nan, 2.0])
    np.testing.assert_allclose(thin(column, 7), column)
    # Seven lines in three shares: 1 3 5 | - - | - 2.
    np.testing.assert_allclose(thin(column, 3), [3.0, math.nan, 2.0])
    np.testing.assert_allclose(thin(column, 1), [11 / 4])
