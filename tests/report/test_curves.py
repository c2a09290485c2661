"""Thinned curves, bands over runs, and where a curve reaches a score, by hand."""

import math
from pathlib import Path

import numpy as np
import pytest
from report.synthetic import write_run

from echelon.report.curves import BAND_POINTS, Band, band, reaches, thin
from echelon.report.methods import group_runs
from echelon.report.reading import Run, read_run


def with_column(tmp_path: Path, values: list[float]) -> Run:
    run = read_run(write_run(tmp_path, iterations=len(values)))
    run.columns["x"] = np.array(values)
    return run


def test_thinning_averages_equal_shares(tmp_path: Path) -> None:
    run = with_column(tmp_path, [1.0, 3.0, 5.0, math.nan, math.nan, math.nan, 2.0])
    np.testing.assert_allclose(thin(run, "x", 7), run.columns["x"])
    # Seven lines in three shares: 1 3 5 | - - | - 2.
    np.testing.assert_allclose(thin(run, "x", 3), [3.0, math.nan, 2.0])
    np.testing.assert_allclose(thin(run, "x", 1), [11 / 4])


def test_a_band_of_two_runs() -> None:
    x = np.array([0.0, 10.0])
    found = band([(x, np.array([0.0, 10.0])), (x, np.array([4.0, 14.0]))])
    assert found is not None
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
    for low, high, mean, deviation in ((0, 5, 2, math.sqrt(2)), (5.1, 7.9, 1, 0), (8, 10, 4, math.sqrt(18))):
        part = (found.x >= low) & (found.x <= high)
        np.testing.assert_allclose(found.mean[part], mean)
        np.testing.assert_allclose(found.deviation[part], deviation)


def test_gaps_are_bridged_and_empty_curves_ignored() -> None:
    x = np.array([0.0, 1.0, 2.0])
    found = band([(x, np.array([0.0, math.nan, 4.0])), (x, np.full(3, math.nan))])
    assert found is not None
    np.testing.assert_allclose(found.mean, 2 * found.x)
    assert band([(x, np.array([1.0, math.nan, math.nan]))]) is None
    assert band([]) is None


def test_reaching_a_score() -> None:
    y = np.array([1.0, 3.0, 2.0, 6.0])
    curve = Band(np.array([0.0, 10.0, 20.0, 30.0]), y, *(np.zeros(4),) * 4)
    assert reaches(curve, 2.0) == pytest.approx(5.0)
    assert reaches(curve, 3.0) == pytest.approx(10.0)
    assert reaches(curve, 4.0) == pytest.approx(25.0)
    assert reaches(curve, 0.5) == 0.0
    assert math.isnan(reaches(curve, 6.1))


def test_methods_are_algorithms_unless_settings_differ(tmp_path: Path) -> None:
    from echelon.config import PullConfig, UpdateConfig

    def read(folder: str, **more: object) -> Run:
        return read_run(write_run(tmp_path / folder, iterations=2, **more))  # pyright: ignore[reportArgumentType]

    plain = [read("a", seed=seed) for seed in (0, 1)]
    other_task = read("a", task="Hopper", update=UpdateConfig(horizon=32))
    methods = group_runs([*plain, other_task])
    assert [(method.name, len(method.runs)) for method in methods] == [("CPO", 3)]
    assert methods[0].on("Hopper") == [other_task]
    weak = read("b", pull=PullConfig(temperature=0.5, cap=3.0))
    longer = read("c", seed=7, planned=50)
    names = [method.name for method in group_runs([*plain, weak, longer, read("a", algo="ppo")])]
    assert names == ["PPO", "CPO · temperature 0.2 · cap 100.0", "CPO · temperature 0.5 · cap 3.0"]


def test_a_variant_goes_by_its_name(tmp_path: Path) -> None:
    """After the algorithm it varies; what else its runs differ in is added, the algorithm too."""
    from echelon.config import PullConfig

    def read(folder: str, variant: tuple[str, ...] = (), algo: str = "cpo", beta: float = 0.001, seed: int = 0) -> Run:
        pull = PullConfig(beta=beta)
        return read_run(write_run(tmp_path / folder, algo, seed=seed, iterations=2, variant=variant, pull=pull))

    no_pull = [read("a", ("no_pull",), beta=0.0, seed=seed) for seed in (0, 1)]
    runs = [*no_pull, read("a"), read("a", ("no_pull", "entropy_off"), beta=0.0), read("a", algo="sapg")]
    methods = group_runs(runs)
    assert [(method.name, len(method.runs)) for method in methods] == [
        ("SAPG", 1),
        ("CPO", 1),
        ("no_pull", 2),
        ("no_pull+entropy_off", 1),
    ]
    names = [method.name for method in group_runs([*no_pull, read("b", ("no_pull",), algo="sapg", beta=0.0)])]
    assert names == ["no_pull · algo sapg", "no_pull · algo cpo"]
