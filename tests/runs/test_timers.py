"""Timers add up by name, nest, and print as a tree."""

import contextlib

import pytest

from echelon.runs.timers import Timers


class Clock:
    """Time that passes only when told."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def iteration(timers: Timers, clock: Clock) -> None:
    """Collect for 3 s; update for 6 s, of which two forwards take 2 s each."""
    with timers("collect"):
        clock.now += 3
    with timers("update"):
        clock.now += 2
        for _ in range(2):
            with timers("forward"):
                clock.now += 2


def test_nested_blocks_continue_the_name(clock: Clock) -> None:
    timers = Timers(clock=clock)
    iteration(timers, clock)
    assert timers.metrics() == {"time/collect": 3, "time/update": 6, "time/update/forward": 4}


def test_reset_begins_an_iteration_and_keeps_the_run(clock: Clock) -> None:
    timers = Timers(clock=clock)
    iteration(timers, clock)
    timers.reset()
    assert timers.metrics() == {}
    iteration(timers, clock)
    assert timers.metrics()["time/update"] == 6
    assert timers.run["update"].seconds == 12
    assert timers.run["update/forward"].calls == 4


def test_a_block_that_raises_is_counted_and_closed(clock: Clock) -> None:
    timers = Timers(clock=clock)
    with contextlib.suppress(ValueError), timers("update"):
        clock.now += 1
        raise ValueError
    with timers("log"):
        clock.now += 1
    assert timers.metrics() == {"time/update": 1, "time/log": 1}


def test_the_tree_indents_children_and_gives_shares(clock: Clock) -> None:
    timers = Timers(clock=clock)
    iteration(timers, clock)
    lines = [line.split() for line in timers.tree().splitlines()]
    assert lines == [
        ["update", "6.000", "s", "66.7%", "1", "×"],
        ["forward", "4.000", "s", "66.7%", "2", "×"],
        ["collect", "3.000", "s", "33.3%", "1", "×"],
    ]
    assert timers.tree().splitlines()[1].startswith("  forward")
    timers.reset()
    assert timers.tree(whole_run=False) == ""


def test_a_parent_that_was_never_timed_adds_up_its_children(clock: Clock) -> None:
    timers = Timers(clock=clock)
    for name in ("env/step", "env/reset"):
        with timers(name):
            clock.now += 2
    assert timers.tree().splitlines()[0].split()[:4] == ["env", "4.000", "s", "100.0%"]
    assert len(timers.tree().splitlines()) == 3


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
