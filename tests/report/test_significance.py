"""Welch and Holm against closed forms, integrals, and the paper's own table."""

import math

import numpy as np
import pytest

from echelon.report.paper import TABLE_1
from echelon.report.significance import Sample, holm, sample, student_p, welch

BOLD = {
    # PPO, PBT, SAPG, CPO
    "ShadowHand": "0001",
    "AllegroHand": "0001",
    "AllegroKukaRegrasping": "0111",
    "AllegroKukaReorientation": "0001",
    "AllegroKukaThrow": "0011",
    "AllegroKukaTwoArmsReorientation": "0101",
}
"""What the paper prints in bold."""


@pytest.mark.parametrize("task", TABLE_1)
def test_the_papers_table_gives_its_own_bold_marks(task: str) -> None:
    samples = [Sample(mean, deviation, 5) for mean, deviation in TABLE_1[task]]
    best = max(samples)
    bold = [one is best or welch(one, best) > 0.05 for one in samples]
    assert bold == [mark == "1" for mark in BOLD[task]]


def test_the_papers_deviations_are_of_a_sample() -> None:
    """Read as deviations of a population, they would make PBT on AllegroHand bold, which it is not."""
    pbt, cpo = (Sample(mean, deviation * math.sqrt(5 / 4), 5) for mean, deviation in TABLE_1["AllegroHand"][1::2])
    assert welch(pbt, cpo) > 0.05


@pytest.mark.parametrize("t", [0.0, 0.3, 1.0, -2.5, 12.0])
def test_students_distribution_in_closed_form(t: float) -> None:
    """ν = 1 is Cauchy's, ν = 2 and ν = 4 have algebraic distribution functions."""
    t = abs(t)
    assert student_p(t, 1) == pytest.approx(1 - 2 / math.pi * math.atan(t), abs=1e-13)
    assert student_p(-t, 2) == pytest.approx(1 - t / math.sqrt(2 + t * t), abs=1e-13)
    y = t / math.sqrt(4 + t * t)
    assert student_p(t, 4) == pytest.approx(1 - 1.5 * y + 0.5 * y**3, abs=1e-13)


@pytest.mark.parametrize(("t", "freedom"), [(1.3, 4.58), (2.9, 7.3), (0.2, 33.0), (1.96, 5000.0)])
def test_students_distribution_by_quadrature(t: float, freedom: float) -> None:
    """1 minus the density's integral over [-t, t], by Simpson's rule."""
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


def test_runs_without_spread() -> None:
    assert welch(Sample(1, 0, 3), Sample(1, 0, 3)) == 1.0
    assert welch(Sample(1, 0, 3), Sample(2, 0, 3)) == 0.0


def test_a_single_run_is_no_test() -> None:
    assert math.isnan(welch(sample([1.0]), sample([2.0, 3.0])))
    assert math.isnan(sample([1.0]).deviation)
    assert math.isnan(sample([]).mean)


def test_holm_by_hand() -> None:
    """Sorted 0.01 0.02 0.03 0.5 times 4 3 2 1: 0.04 0.06 0.06 0.5; each at least the one before."""
    assert holm([0.02, 0.5, 0.01, 0.03]) == pytest.approx([0.06, 0.5, 0.04, 0.06])
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.7, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_holm_leaves_out_what_was_not_tested() -> None:
    first, missing, last = holm([0.02, math.nan, 0.04])
    assert (first, last) == pytest.approx((0.04, 0.04))
    assert math.isnan(missing)
