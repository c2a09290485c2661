"""Named timers around the parts of an iteration.

On CUDA the host runs ahead of the device, so times are taken by CUDA events and read when the iteration is over: timing
never makes the host wait.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch


@dataclass
class Span:
    """Total time and number of calls of one timer."""

    seconds: float = 0.0
    calls: int = 0


class Timers:
    """Seconds by name, for the current iteration and for the whole run. Reading them on CUDA waits for the device."""

    def __init__(
        self,
        clock: Callable[[], Any] = time.perf_counter,
        between: Callable[[Any, Any], float] = lambda start, end: end - start,
    ) -> None:
        """`clock` returns a time stamp, `between` the seconds from one to another. `for_device` chooses both."""
        self._clock, self._between = clock, between
        self._blocks: list[tuple[str, Any, Any]] = []
        self.iteration: dict[str, Span] = {}
        self.run: dict[str, Span] = {}

    @staticmethod
    def for_device(device: torch.device) -> "Timers":
        """CUDA events on a GPU, the host's clock on a CPU."""
        return Timers(_event, _seconds) if device.type == "cuda" else Timers()

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Time a block."""
        start = self._clock()
        try:
            yield
        finally:
            self._blocks.append((name, start, self._clock()))

    def settle(self) -> None:
        """Add the blocks timed since the last call to the totals."""
        for name, start, end in self._blocks:
            seconds = self._between(start, end)
            for spans in (self.iteration, self.run):
                span = spans.setdefault(name, Span())
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

    def table(self) -> str:
        """A line per name of the whole run, the longest first: seconds, share, and calls."""
        self.settle()
        total = sum(span.seconds for span in self.run.values())
        return "\n".join(
            f"{name:<28}{span.seconds:>10.3f} s {span.seconds / total if total else 0.0:>6.1%} {span.calls:>8} ×"
            for name, span in sorted(self.run.items(), key=lambda item: -item[1].seconds)
        )


def _event() -> torch.cuda.Event:
    """A CUDA event at this point of the current stream."""
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def _seconds(start: torch.cuda.Event, end: torch.cuda.Event) -> float:
    end.synchronize()
    return start.elapsed_time(end) / 1000
