"""Thinned curves and bands over runs, by hand."""

import math

import numpy as np
import pytest

from echelon.report.curves import BAND_POINTS, at_step, band, thin


def test_thinning_averages_equal_shares() -> None:
    column = np.array([1.0, 3.0, 5.0, math.nan, math.nan, math.nan, 2.0])
    np.testing.assert_allclose(thin(column, 7), column)
    # Seven lines in three shares: 1 3 5 | - - | - 2.
    np.testing.assert_allclose(thin(column, 3), [3.0, math.nan, 2.0])
    np.testing.assert_allclose(thin(column, 1), [11 / 4])


def test_a_band_of_two_runs() -> None:
    x = np.array([0.0, 10.0])
    curves = [(x, np.array([0.0, 10.0])), (x, np.array([4.0, 14.0]))]
    found, unsure = band(curves, min_runs=2), band(curves)
    assert found is not None
    assert unsure is not None
    assert np.isnan(unsure.low).all()  # two runs are too few for an interval
    np.testing.assert_allclose(found.x, np.linspace(0, 10, BAND_POINTS))
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
    found = band([long, short, late])
    assert found is not None
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
    found = band([(x, np.array([0.0, math.nan, 4.0])), (x, np.full(3, math.nan))])
    assert found is not None
    np.testing.assert_allclose(found.mean, 2 * found.x)
    assert band([(x, np.array([1.0, math.nan, math.nan]))]) is None
    assert band([]) is None


def test_a_score_at_a_step_averages_the_last_twentieth_before_it() -> None:
    x, y = np.arange(1.0, 101.0), np.arange(1.0, 101.0)
    assert at_step(x, y, 100.0) == pytest.approx(98.0)  # 96 to 100
    assert at_step(x, y, 40.0) == pytest.approx(39.5)  # 39 and 40
    assert at_step(x, y, 10.5) == 10.0
    y[9] = math.nan
    assert at_step(x, y, 10.5) == 9.0  # nothing in the last twentieth: the last before
    assert math.isnan(at_step(x, y, 0.5))
