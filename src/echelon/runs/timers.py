"""Named timers around the parts of an iteration, printed as a tree.

A block timed inside another continues its name: `forward` within `update` is counted as `update/forward`.

On CUDA the host runs ahead of the device, so moments are events in the device's queue. They are read once the iteration
is over, and timing makes nobody wait.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch


@dataclass
class Span:
    """What one name has added up to."""

    seconds: float = 0.0
    calls: int = 0


class Timers:
    """Seconds by name, for the current iteration and for the whole run. Reading them on CUDA waits for the device."""

    def __init__(
        self,
        clock: Callable[[], Any] = time.perf_counter,
        between: Callable[[Any, Any], float] = lambda start, end: end - start,
    ) -> None:
        """`clock` gives a moment and `between` the seconds from one to another. See `for_device`."""
        self._clock, self._between = clock, between
        self._open: list[str] = []
        self._blocks: list[tuple[str, Any, Any]] = []
        self.iteration: dict[str, Span] = {}
        self.run: dict[str, Span] = {}

    @staticmethod
    def for_device(device: torch.device) -> "Timers":
        """Timers of the device's own time."""
        return Timers(_event, _seconds) if device.type == "cuda" else Timers()

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Time a block. Inside another timed block, the name is continued from that one's."""
        path = "/".join([*self._open[-1:], name])
        self._open.append(path)
        # A parent is entered before its children, so that the tree lists it first.
        self.iteration.setdefault(path, Span())
        start = self._clock()
        try:
            yield
        finally:
            self._open.pop()
            self._blocks.append((path, start, self._clock()))

    def settle(self) -> None:
        """Add up what was timed since the last call."""
        for path, start, end in self._blocks:
            seconds = self._between(start, end)
            for spans in (self.iteration, self.run):
                span = spans.setdefault(path, Span())
                span.seconds += seconds
                span.calls += 1
        self._blocks.clear()

    def metrics(self) -> dict[str, float]:
        """This iteration's seconds as `time/NAME`."""
        self.settle()
        return {f"time/{name}": span.seconds for name, span in self.iteration.items()}

    def reset(self) -> None:
        """Begin the next iteration."""
        self.settle()
        self.iteration.clear()

    def tree(self, whole_run: bool = True) -> str:
        """A line per name, indented under its parent, with seconds, share of the parent, and calls."""
        self.settle()
        spans = _with_parents(self.run if whole_run else self.iteration)
        return "\n".join(_branch(spans, "", sum(span.seconds for name, span in spans.items() if "/" not in name)))


def _event() -> torch.cuda.Event:
    """This moment of the device's queue."""
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def _seconds(start: torch.cuda.Event, end: torch.cuda.Event) -> float:
    end.synchronize()
    return start.elapsed_time(end) / 1000


def _with_parents(spans: dict[str, Span]) -> dict[str, Span]:
    """`spans`, and for names like `a/b` whose `a` was never timed itself, an `a` that adds them up."""
    complete = dict(spans)
    for name in sorted(spans, key=lambda name: -name.count("/")):
        parent = name
        while "/" in parent:
            parent = parent.rpartition("/")[0]
            if parent in spans:
                break
            implied = complete.setdefault(parent, Span())
            implied.seconds += spans[name].seconds
            implied.calls += spans[name].calls
    return complete


def _branch(spans: dict[str, Span], parent: str, total: float) -> list[str]:
    """The lines below `parent`, whose own time is `total`, longest first."""
    children = [name for name in spans if name.rpartition("/")[0] == parent]
    lines: list[str] = []
    for name in sorted(children, key=lambda child: -spans[child].seconds):
        span, depth = spans[name], name.count("/")
        label = "  " * depth + name.rpartition("/")[2]
        share = span.seconds / total if total > 0 else 0.0
        lines.append(f"{label:<28}{span.seconds:>10.3f} s {share:>6.1%} {span.calls:>8} ×")
        lines += _branch(spans, name, span.seconds)
    return lines
