"""The model of scale, by numbers that can be worked out on paper."""

import pytest

from echelon.planning.links import Links, all_reduce_seconds, exchange_seconds, sent_bytes
from echelon.planning.model import (
    Rates,
    fixed_minibatch,
    gpus_worth_it,
    growing_minibatch,
    islands,
    straggling,
)
from echelon.planning.rates import H200, H200_FLOOR_S, step_floor
from echelon.planning.table import advice, predictions, table

LINKS = Links(
    gpus_per_node=4,
    node_gb=100.0,
    node_us=5.0,
    network_gbit=80.0,
    network_us=20.0,
    store_mbit=80.0,
    store_ms=100.0,
)
RATES = Rates(
    env_steps=1000,
    collect_s=0.08,
    update_s=0.02,
    gradient_steps=10,
    step_floor_s=0.0005,
    parameters=2_000_000,  # 8 MB
    source="made up",
)


def test_adding_up_a_gradient() -> None:
    """In a node of 4, each sends 3/2 of 8 MB at 100 GB/s, 120 µs, and there are 2 hops up and 2 down, 20 µs. Between
    two nodes, each sends 2 MB, its part of the node's sum, at 10 GB/s, 200 µs, and there are 2 hops, 40 µs."""
    assert all_reduce_seconds(8e6, 1, LINKS) == 0.0
    assert all_reduce_seconds(8e6, 4, LINKS) == pytest.approx(140e-6)
    assert all_reduce_seconds(8e6, 8, LINKS) == pytest.approx(380e-6)
    assert all_reduce_seconds(0, 4, LINKS) == pytest.approx(20e-6)
    assert sent_bytes(8e6, 4) == pytest.approx(12e6)


def test_one_gpu_is_what_was_measured() -> None:
    for recipe in (growing_minibatch, fixed_minibatch):
        one = recipe(RATES, 1, LINKS)
        assert (one.iteration_s, one.efficiency, one.sent_bytes) == (pytest.approx(0.1), 1.0, 0.0)
    assert growing_minibatch(RATES, 1, LINKS).seconds(50_000) == pytest.approx(5.0)  # 50 iterations


def test_a_growing_minibatch() -> None:
    """100 ms, ten sums of gradients of 140 µs, five small ones of 20 µs: 101.5 ms."""
    found = growing_minibatch(RATES, 4, LINKS, jitter=0.0)
    assert found.iteration_s == pytest.approx(0.1015)
    assert found.efficiency == pytest.approx(0.1 / 0.1015)
    assert (found.env_steps, found.gradient_steps, found.sent_bytes) == (4000, 10, pytest.approx(120e6))
    assert found.seconds(40_000) == pytest.approx(1.015)


def test_a_fixed_minibatch() -> None:
    """40 steps: 80 ms, 20 ms and 30 floors of 0.5 ms, 40 sums of 140 µs, five of 20 µs: 120.7 ms."""
    found = fixed_minibatch(RATES, 4, LINKS, jitter=0.0)
    assert found.iteration_s == pytest.approx(0.1207)
    assert (found.gradient_steps, found.sent_bytes) == (40, pytest.approx(480e6))


def test_the_slowest_of_four_is_waited_for() -> None:
    """√(2 ln 4) = 1.6651 deviations of 1 %."""
    assert straggling(1, 0.01) == 1.0
    assert straggling(4, 0.01) == pytest.approx(1.016651, abs=1e-6)
    found = growing_minibatch(RATES, 4, LINKS, jitter=0.01)
    assert found.iteration_s == pytest.approx(0.1016651 + 0.0015, abs=1e-7)


def test_islands_wait_for_the_store_alone() -> None:
    """8 MB at 10 MB/s take 0.8 s, the answer 0.1 s, there and back 1.8 s, every 100 iterations: 18 ms each."""
    assert exchange_seconds(8e6, LINKS) == pytest.approx(1.8)
    found = islands(RATES, 64, LINKS, every=100)
    assert found.iteration_s == pytest.approx(0.118)
    assert (found.env_steps, found.sent_bytes) == (64_000, pytest.approx(80_000))
    of_four = islands(RATES, 64, LINKS, each=4, jitter=0.0)
    assert of_four.iteration_s == pytest.approx(0.1207 + 0.018)
    assert of_four.sent_bytes == pytest.approx(480e6 + 20_000)  # its part of what the island publishes


def test_how_many_gpus_a_run_should_have() -> None:
    """4 run at 0.1 / 0.1207 = 83 %. 8: 80 + 20 + 70 · 0.5 + 80 · 0.38 + 5 · 0.06 = 165.7 ms, 60 %."""
    assert fixed_minibatch(RATES, 8, LINKS, jitter=0.0).iteration_s == pytest.approx(0.1657)
    assert [gpus_worth_it(RATES, gpus, LINKS, jitter=0.0) for gpus in (1, 4, 6, 8, 64)] == [1, 4, 3, 4, 4]
    assert advice(RATES, 64, LINKS, 0.0).startswith("Train 16 islands of 4 GPUs. A fixed minibatch on all 64")
    assert advice(RATES, 4, LINKS, 0.0).startswith("Train one run on all 4 with a fixed minibatch")
    assert advice(RATES, 1, LINKS) == "One GPU: train as always."


def test_the_floor_of_a_step() -> None:
    """AllegroHand on an H200: 20 steps take 27.57 ms, 9.33 ms with a sixth of the environments. A line through both has
    (6 · 9.33 - 27.57) / 5 = 5.682 ms at none, 0.284 ms a step."""
    assert step_floor(27.57, 9.33, 6, 20) == pytest.approx(0.2841, abs=1e-4)
    assert step_floor(27.57e-3, 9.33e-3, 6, 20) == pytest.approx(H200_FLOOR_S, rel=1e-3)
    assert step_floor(1.0, 0.1, 4, 10) == 0.0  # noise may say less than nothing


def test_the_table_has_a_line_for_each_way() -> None:
    lines = table(predictions(RATES, 8, LINKS, 0.0), 8_000_000).splitlines()
    assert [line[:18].strip() for line in lines] == [
        "",
        "growing minibatch",
        "fixed minibatch",
        "islands",
        "islands of 4",
    ]
    # 1,000 iterations of 165.7 ms on eight GPUs
    assert " ".join(lines[2].split()[2:]) == "2 min 46 s 165.7 ms 48.3 k 0.60 80 1,120.00 MB 0.4"


def test_published_rates_are_those_that_were_measured() -> None:
    """Against the raw data."""
    import json
    from pathlib import Path

    names = {"AllegroHand-cpo-no-adversary": ("AllegroHand", "no_adversary")}
    seen = set()
    for line in (Path(__file__).parents[2] / "results" / "speed" / "h200.jsonl").read_text().splitlines():
        one = json.loads(line)
        case = names.get(one["case"], (one["task"], one["algo"]))
        if one["run"] == 0 and case in H200:
            collect, update = H200[case]
            assert one["ms_update"] == pytest.approx(update, abs=0.06)
            assert one["ms_iteration"] - one["ms_update"] == pytest.approx(collect, abs=0.06), case
            seen.add(case)
    assert seen == set(H200)
