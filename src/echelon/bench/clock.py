"""Time a piece of device work by itself."""

import statistics
import time
import warnings
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch

from echelon.device.capture import Captured


class Clock:
    """Median milliseconds of repeated calls. On CUDA the work is captured as a graph, if training does so."""

    def __init__(
        self,
        device: torch.device,
        generators: Iterable[torch.Generator],
        repeats: int,
        *,
        capture: bool,
        mode: Literal["global", "thread_local"] = "global",
    ) -> None:
        """`mode` is that of `Captured`."""
        self.device, self._generators, self._repeats, self._capture = device, tuple(generators), repeats, capture
        self._mode: Literal["global", "thread_local"] = mode

    def milliseconds(
        self, run: Callable[[], object], around: Callable[[], AbstractContextManager[None]] = nullcontext
    ) -> float:
        """Median milliseconds of a captured call. `around` is entered while it is captured."""
        captured = Captured(run, self.device, self._generators, around, enabled=self._capture, mode=self._mode)
        for _ in range(3):  # plain, recorded, replayed
            captured()
        return self.typical(captured)

    def typical(self, run: Callable[[], object]) -> float:
        """Median milliseconds of a call without capturing."""
        return statistics.median(self.once(run) for _ in range(self._repeats))

    def once(self, run: Callable[[], object]) -> float:
        """Milliseconds of one call, with the device idle before and after it."""
        began = self._now()
        run()
        return 1000 * (self._now() - began)

    def _now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()


SYNCHRONISED = "called a synchronizing CUDA operation"
"""Text of torch's warning. Enabling the debug mode emits another one, which does not count."""


def synchronisations(run: Callable[[], object], device: torch.device) -> int | None:
    """How often the host waits for the device in `run`, as far as torch notices; None on a CPU."""
    if device.type != "cuda":
        return None
    with warnings.catch_warnings(record=True) as noticed:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            run()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return sum(SYNCHRONISED in str(warning.message) for warning in noticed)


def memory(device: torch.device) -> int | None:
    """Bytes of the device in use, by torch, Warp and graphs alike; None on a CPU."""
    if device.type != "cuda":
        return None
    free, total = torch.cuda.mem_get_info(device)
    return total - free
