"""The progress of a run, computed once for both views."""

import contextlib
import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from echelon.config import TrainConfig
from echelon.runs.folder import RunFolder
from echelon.runs.metrics import read_columns

PACE_ITERATIONS = 30
"""Iterations the time left is estimated from: enough to be calm, few enough to forget the first, slow ones."""


class Mark(NamedTuple):
    """A point in time, and the iterations done by then."""

    time: float
    done: int


class Course:
    """A quantity over the whole run, thinned evenly so that drawing it stays cheap in a run of any length."""

    LIMIT = 512

    def __init__(self) -> None:
        self.values: list[float] = []
        self._stride = 1
        self._seen = 0

    def append(self, value: float) -> None:
        """Keep every `stride`-th finite value; twice the stride once the list is full."""
        if not math.isfinite(value):
            return
        if self._seen % self._stride == 0:
            self.values = [*self.values, value]  # A new list: the view draws from another thread.
        self._seen += 1
        if len(self.values) > self.LIMIT:
            self.values = self.values[::2]
            self._stride *= 2


class Progress:
    """The newest metrics of a run, and their course so far."""

    def __init__(
        self,
        config: TrainConfig,
        folder: RunFolder,
        total_iterations: int,
        first_iteration: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.config = config
        self.folder = folder
        self.total = total_iterations
        self.done = first_iteration
        self.metrics: dict[str, float] = {}
        self.returns = Course()
        before: dict[str, Any] = {}
        with contextlib.suppress(OSError):  # the writer of the file reports it
            before = read_columns(folder, "return/leader".__eq__) if first_iteration else {}
        for value in before.get("return/leader", ()):
            self.returns.append(float(value))
        self._clock = clock
        self._marks = deque([Mark(clock(), first_iteration)], maxlen=PACE_ITERATIONS)
        self._warm = False

    def update(self, metrics: Mapping[str, float]) -> None:
        """Take in one iteration."""
        self.metrics = dict(metrics)
        self.done = int(metrics.get("iteration", self.done + 1))
        if not self._warm and len(self._marks) == 2:
            self._marks.popleft()  # The first iteration compiles kernels, so its time says nothing.
            self._warm = True
        self._marks.append(Mark(self._clock(), self.done))
        self.returns.append(self.get("return/leader"))

    def get(self, name: str) -> float:
        """The newest value of a metric, NaN where it was not logged."""
        return self.metrics.get(name, math.nan)

    @property
    def share(self) -> float:
        """Part of the run that is done, 0 to 1."""
        return min(1.0, self.done / self.total) if self.total > 0 else 1.0

    @property
    def seconds_left(self) -> float:
        """At the pace of the last iterations; NaN before there is one."""
        first, last = self._marks[0], self._marks[-1]
        if last.done <= first.done:
            return math.nan
        return (last.time - first.time) / (last.done - first.done) * max(0, self.total - last.done)

    @property
    def env_steps(self) -> float:
        """Environment steps taken, whether the trainer logged them or not."""
        steps = self.get("env_steps")
        return steps if math.isfinite(steps) else self.done * self.config.steps_per_iteration

    def logged(self, prefix: str) -> dict[str, float]:
        """Finite metrics that start with `prefix`, under the rest of their names."""
        return {
            name.removeprefix(prefix): value
            for name, value in self.metrics.items()
            if name.startswith(prefix) and math.isfinite(value)
        }
