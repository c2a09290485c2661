"""Timers add up by name, over an iteration and over the run."""

import contextlib

import pytest

from echelon.device.timers import Timers


class Clock:
    """Time that passes only when told."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def timers(clock: Clock) -> Timers:
    return Timers(clock=clock)


def iteration(timers: Timers, clock: Clock) -> None:
    """Collect for 3 s; update for 6 s, in two blocks."""
    with timers("collect"):
        clock.now += 3
    for _ in range(2):
        with timers("update"):
            clock.now += 3


def test_blocks_add_up_by_name_over_an_iteration_and_over_the_run(timers: Timers, clock: Clock) -> None:
    assert timers.table() == ""
    for _ in range(2):
        timers.reset()
        assert timers.metrics() == {}
        iteration(timers, clock)
        assert timers.metrics() == {"time/collect": 3, "time/update": 6}
    assert (timers.run["update"].seconds, timers.run["update"].calls) == (12, 4)
    assert [line.split() for line in timers.table().splitlines()] == [
        ["update", "12.000", "s", "66.7%", "4", "×"],
        ["collect", "6.000", "s", "33.3%", "2", "×"],
    ]


def test_a_block_that_raises_is_counted_and_closed(timers: Timers, clock: Clock) -> None:
    with contextlib.suppress(ValueError), timers("update"):
        clock.now += 1
        raise ValueError
    with timers("log"):
        clock.now += 1
    assert timers.metrics() == {"time/update": 1, "time/log": 1}


def test_moments_are_compared_only_when_somebody_asks(clock: Clock) -> None:
    """As on CUDA, where a moment is an event that has not happened yet when it is taken."""
    compared = []

    def between(start: float, end: float) -> float:
        compared.append((start, end))
        return end - start

    timers = Timers(clock, between)
    with timers("update"):
        clock.now += 1
    assert compared == []
    assert timers.metrics() == {"time/update": 1}
    timers.settle()
    assert compared == [(100.0, 101.0)]
    assert timers.run["update"].seconds == 1
