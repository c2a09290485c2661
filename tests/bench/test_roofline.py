"""The least time of an update: sums by hand, and the figures that the targets rest on."""

from dataclasses import replace
from typing import Any

import pytest
import roofline

from echelon.config import ModelConfig
from echelon.tasks import preset

ALLEGRO, SHADOW, KUKA = ({"policy": 88}, 16), ({"policy": 211}, 20), ({"policy": 117}, 23)


def test_a_product_is_bound_by_the_slower_of_two() -> None:
    """512 × 512: 2·512·512 = 524,288 operations a row, 1.413 ns at 371 T/s; 4·1,024 bytes, 1.067 ns at 3.84 TB/s.
    120 × 512: 122,880 operations, 0.331 ns; 4·632 = 2,528 bytes, 0.658 ns."""
    assert roofline.Product(1, 512, 512).seconds == pytest.approx(1.413e-9, rel=1e-3)
    assert roofline.Product(1, 120, 512).seconds == pytest.approx(0.658e-9, rel=1e-3)


MLP, LSTM = ModelConfig(hidden=(7, 5), phi_dim=4), ModelConfig(hidden=(7,), lstm=8, phi_dim=4)


@pytest.mark.parametrize(
    ("model", "spec", "policies", "units", "products"),
    [
        (MLP, {"policy": 3}, 6, 100, [(100, 3 + 4, 7), (100, 7, 5), (100, 5, 2 + 1)]),
        (MLP, {"policy": 3}, 1, 100, [(100, 3, 7), (100, 7, 5), (100, 5, 3)]),
        (MLP, {"policy": 3}, 6, 60, [(60, 3, 7), (100, 7, 5), (100, 5, 3)]),  # a shared first layer reads a unit once
        (
            *(LSTM, {"policy": 3, "critic": 9}, 6, 100),
            [
                *((100, 3 + 4, 32), (100, 8, 32), (100, 8, 7), (100, 7, 2)),
                *((100, 9 + 4, 32), (100, 8, 32), (100, 8, 7), (100, 7, 1)),
            ],
        ),
    ],
)
def test_products(model: ModelConfig, spec: dict[str, int], policies: int, units: int, products: list) -> None:
    found = roofline.forward(model, spec, 2, policies, evaluations=100, units=units)
    assert [(one.rows, one.inputs, one.outputs) for one in found] == products


@pytest.mark.parametrize(("algo", "times"), [("ppo", 1), ("sapg", 7 / 6), ("cpo", 2)])
def test_rows_of_an_update(algo: Any, times: float) -> None:
    """AllegroHand: 24,576 environments, 8 steps, 5 passes; the leader borrows a sixth, five followers another 5/6."""
    config = replace(preset("AllegroHand"), algo=algo)
    rows = [one.rows for one in roofline.update_products(config, *ALLEGRO)]
    assert rows == [times * 24_576 * 8 * 5] * 4
    shared = [one.rows for one in roofline.update_products(config, *ALLEGRO, shared=True)]
    assert shared == [24_576 * 8 * 5, *rows[1:]]


@pytest.mark.parametrize(
    ("task", "sizes", "sapg", "cpo", "tolerance"),
    [
        ("AllegroHand", ALLEGRO, 6.9, 11.9, 0.01),
        ("ShadowHand", SHADOW, 12.3, 21.0, 0.01),
        ("AllegroKukaReorientation", KUKA, 66.0, 113.0, 0.07),
    ],
)
def test_the_figures_that_the_targets_rest_on(task: str, sizes: Any, sapg: float, cpo: float, tolerance: float) -> None:
    config = preset(task)
    for algo, expected in (("sapg", sapg), ("cpo", cpo)):
        found = roofline.update_roofline(replace(config, algo=algo), *sizes)
        assert found["roofline_ms"] == pytest.approx(expected, rel=tolerance)
        assert found["roofline_shared_ms"] < found["roofline_ms"]


def test_operations_of_an_update() -> None:
    """0.2275 M multiply-adds a row (120·512 + 512·256 + 256·128 + 128·17), 2 M rows, 3 passes, 2 operations each."""
    found = roofline.update_roofline(preset("AllegroHand"), *ALLEGRO)
    assert found["update_tflop"] == pytest.approx(2 * 3 * 0.227456e6 * 2 * 983_040 / 1e12)
