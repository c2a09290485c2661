"""Statistics against numbers worked out by hand."""

import numpy as np
import pytest

from echelon.report.statistics import Scores, bootstrap_interval, interquartile_mean, probability_of_improvement


def mean(*strata: Scores) -> Scores:
    return np.concatenate(strata, axis=-1).mean(axis=-1)


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([7.0], 7.0),
        ([1.0, 2.0, 9.0], 4.0),  # a quarter of 3 is no run: nothing is cut
        ([100.0, 2.0, 3.0, -50.0], 2.5),  # one at each end
        ([0.0, 1.0, 2.0, 3.0, 100.0], 2.0),  # a quarter of 5, rounded down: one at each end, (1 + 2 + 3)/3
        ([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], 3.5),  # (2 + 3 + 4 + 5)/4
    ],
)
def test_interquartile_mean_by_hand(scores: list[float], expected: float) -> None:
    assert interquartile_mean(scores) == pytest.approx(expected)


def test_one_run_each_has_no_interval() -> None:
    assert np.isnan(bootstrap_interval([3.0], [4.0])).all()
    assert np.isfinite(bootstrap_interval([3.0], [4.0, 5.0])).all()


def test_interquartile_mean_pools_its_strata() -> None:
    """[0, 10, 20, 30] and [1, 2, 3, 4] sorted: 0 1 | 2 3 4 10 | 20 30, hence 19/4."""
    assert interquartile_mean([0.0, 10.0, 20.0, 30.0], [1.0, 2.0, 3.0, 4.0]) == pytest.approx(4.75)


def test_interquartile_mean_reduces_the_last_dimension() -> None:
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


def test_bootstrap_resamples_within_strata() -> None:
    """Each stratum is constant, so every resample has mean ½; mixing the strata would not."""
    assert bootstrap_interval([0.0] * 3, [1.0] * 3, statistic=mean) == (0.5, 0.5)


def test_bootstrap_of_a_comparison_resamples_both_sides() -> None:
    """P(X > Y) of [0, 2] against [1]: ½; a resample has 0, 1 or 2 winners of 2, with probability ¼, ½, ¼."""
    assert bootstrap_interval([0.0, 2.0], [1.0], statistic=probability_of_improvement) == (0.0, 1.0)
    assert bootstrap_interval([0.0, 2.0], [1.0], statistic=probability_of_improvement, confidence=0.4) == (0.5, 0.5)


def test_a_seed_decides_the_resamples() -> None:
    scores = np.arange(20.0) ** 2
    assert bootstrap_interval(scores, seed=3) == bootstrap_interval(scores, seed=3)
    assert bootstrap_interval(scores, seed=3) != bootstrap_interval(scores, seed=4)


def test_bootstrap_intervals_cover_at_the_stated_rate() -> None:
    """Of 400 intervals at 80 %, about 80 % hold the truth; the share's own deviation is 2 %, and an interval from 60
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
