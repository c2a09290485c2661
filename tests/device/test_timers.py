"""Timers add up by name, over an iteration and over the run."""

import contextlib

from echelon.device.timers import Timers


class Clock:
    """Time that passes only when told."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_blocks_add_up_by_name_and_one_that_raises_is_closed() -> None:
    clock = Clock()
    timers = Timers(clock)
    assert timers.table() == ""
    for _ in range(2):
        timers.reset()
        assert timers.metrics() == {}
        for name in ("collect", "update", "update"):
            with timers(name):
                clock.now += 3
        assert timers.metrics() == {"time/collect": 3, "time/update": 6}
    assert (timers.run["update"].seconds, timers.run["update"].calls) == (12, 4)
    assert [line.split() for line in timers.table().splitlines()] == [
        ["update", "12.000", "s", "66.7%", "4", "×"],
        ["collect", "6.000", "s", "33.3%", "2", "×"],
    ]
    # As on CUDA, where a moment is an event that has not happened yet when it is taken.
    clock, compared = Clock(), []
    timers = Timers(clock, lambda start, end: compared.append((start, end)) or end - start)
    with contextlib.suppress(ValueError), timers("update"):
        clock.now += 1
        raise ValueError
    with timers("log"):
        clock.now += 1
    assert compared == []
    assert timers.metrics() == {"time/update": 1, "time/log": 1}
    timers.settle()
    assert compared == [(100.0, 101.0), (101.0, 102.0)]
    assert timers.run["update"].seconds == 1
