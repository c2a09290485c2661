"""The suite of rates: what its cases set, and what is made of its lines."""

import argparse
import json
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def speed(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    import speed  # pyright: ignore[reportMissingImports]  # found by the line above

    return speed


@pytest.fixture
def rates(speed: Any) -> Any:
    import rates  # pyright: ignore[reportMissingImports]

    return rates


def line(case: str, run: int, iteration: float) -> dict[str, Any]:
    return {
        "case": case,
        "run": run,
        "physics": 2e6,
        "physics_in_training": 1.6e6,
        "rollout": 1.5e6,
        "training": 1e6,
        "ms_iteration": iteration,
        "ms_collect": 100.0,
        "ms_targets": 10.0,
        "ms_update": 30.0,
        "roofline_ms": 12.0,
        "update_over_roofline": 2.5,
        "gib": None,
    }


@pytest.mark.parametrize(
    ("task", "adversary", "coef"),
    [
        ("AllegroHand", None, 0.001),
        ("AllegroHand", "on", 0.001),
        ("AllegroHand", "off", 0.0),
        ("AllegroKukaReorientation", None, 0.0),
        ("AllegroKukaReorientation", "on", 0.01),
    ],
)
def test_the_adversarial_reward_is_switched(rates: Any, task: str, adversary: str | None, coef: float) -> None:
    config = rates.settings(task, "cpo", 12, adversary)
    assert (config.adversary.coef, config.num_envs) == (coef, 12)


def test_ratios_pair_runs_and_divide_medians(speed: Any) -> None:
    """Run 1 of SAPG failed: 230/200 pairs with run 0 only; of the medians, (230 + 250)/2 over 200."""
    rows = [
        line("AllegroHand-cpo-no-adversary", 0, 230.0),
        line("AllegroHand-sapg", 0, 200.0),
        line("AllegroHand-cpo-no-adversary", 1, 250.0),
        line("AllegroHand-ppo", 1, 100.0),
    ]
    assert speed.ratios(rows) == [
        "* CPO's iteration over SAPG's, without adversarial reward: 1.200 (1.150)",
        "* SAPG's iteration over PPO's: 2.000 ()",
    ]


def test_runs_stand_side_by_side(speed: Any) -> None:
    rows = [line("AllegroHand-cpo", 0, 1.0), line("AllegroHand-cpo", 1, 1.0) | {"training": 1.5e6, "gib": 6.84}]
    assert speed.table(rows).splitlines()[2] == (
        "| AllegroHand-cpo | 2.00, 2.00 | 1.60, 1.60 | 1.50, 1.50 | 1.00, 1.50 | 50%, 75% | 62%, 94% "
        "| 100.0 / 10.0 / 30.0, 100.0 / 10.0 / 30.0 | 12.0 | 2.50, 2.50 | -, 6.8 |"
    )


def test_a_case_is_measured_in_a_process(speed: Any) -> None:
    args = argparse.Namespace(num_envs=12, iterations=1, seconds=0.1, device="cpu")
    found = speed.measure("AllegroHand-cpo-no-adversary", 3, args)
    assert (found["task"], found["algo"], found["adversary"], found["run"]) == ("AllegroHand", "cpo", False, 3)
    assert found["update_over_roofline"] == pytest.approx(found["ms_update"] / found["roofline_ms"])
    assert found["ms_iteration"] > found["ms_update"] > 0
    assert "random" not in found
    assert speed.table([json.loads(json.dumps(found))])


def test_a_case_that_fails_is_no_result(speed: Any) -> None:
    """Six policies have at least six environments."""
    args = argparse.Namespace(num_envs=5, iterations=1, seconds=0.1, device="cpu")
    assert speed.measure("AllegroHand-sapg", 0, args) is None
