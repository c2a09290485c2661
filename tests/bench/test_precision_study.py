"""The comparison of precisions: what is kept of a run, and its table."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from echelon.presets import preset

NAN = float("nan")


@pytest.fixture
def precision(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    import precision  # pyright: ignore[reportMissingImports]  # found by the line above

    return precision


def lines(*returns: float) -> list[dict[str, float]]:
    return [{"return/leader": value, "env_steps": 100.0 * (i + 1)} for i, value in enumerate(returns)]


@pytest.mark.parametrize(
    ("returns", "steps"),
    [
        ((0, 0, 0, 0, 50, 10, 10, 10), 500),  # (0·4 + 50)/5 = 10
        ((NAN, NAN, 0, 0, 0, 0, 50), 700),  # without episodes nothing is known
        ((50, 0, 0, 0), None),  # no full window
        ((9, 9, 9, 9, 9, 9), None),
        ((0, 0, 0, 0, 0, 40, 10), 700),  # 40/5 = 8, then (40 + 10)/5 = 10
    ],
)
def test_steps_to_a_threshold(precision: Any, returns: tuple[float, ...], steps: int | None) -> None:
    assert precision.steps_to(10.0, lines(*returns)) == steps


def test_three_precisions_on_a_gpu_and_one_on_a_cpu(precision: Any) -> None:
    base = preset("Hopper")
    assert {name: config.precision for name, config in precision.methods(replace(base, device="cuda")).items()} == {
        "tf32": "tf32",
        "fp32": "fp32",
        "bf16": "bf16",
    }
    assert list(precision.methods(replace(base, device="cpu"))) == ["fp32"]


def test_a_line_per_precision(precision: Any) -> None:
    def row(method: str, seed: int, value: float, steps: str) -> dict[str, str]:
        names = ("method", "seed", "final_return/leader", "steps_to_threshold")
        return dict(zip(names, (method, str(seed), str(value), steps), strict=True))

    rows = [
        row("tf32", 1, 1200.0, ""),
        row("fp32", 0, 1000.0, "900000"),
        row("tf32", 0, 1100.0, "800000"),
    ]
    text = precision.page(rows, preset("Hopper"), "a machine").splitlines()
    assert text[-2:] == [
        "| tf32 | 1100, 1200 | 1150 ± 71 | 0.80, never |",
        "| fp32 | 1000 | 1000 ± 0 | 0.90 |",
    ]


def test_a_cell_trains_and_is_kept(precision: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    study = precision.study
    monkeypatch.setattr(study, "SCRATCH", tmp_path)
    base = replace(preset("CartpoleSwingup"), device="cpu", num_envs=12, iterations=12)
    (cell,) = study.grid(precision.methods(base), [7])
    kept = study._run_cell("precision", cell, study.Summary(precision.COLUMNS, precision.Figures(-1e9), episodes=0))
    assert (kept.row["method"], kept.row["seed"]) == ("fp32", 7)
    steps = [int(point["env_steps"]) for point in kept.curve]
    assert steps == [base.num_envs * base.update.horizon * (i + 1) for i in range(12)]  # a point per iteration
    # Any return will do, so the threshold is reached when five are known: at the eighth, as the leader has none before
    # its first episode ends, in the fourth.
    known = [int(point["env_steps"]) for point in kept.curve if point["return/leader"]]
    assert kept.row["steps_to_threshold"] == known[4] == steps[7]
    assert all(float(point["lr"]) > 0 for point in kept.curve)
