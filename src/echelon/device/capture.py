"""Recording device work as a CUDA graph: thousands of launches become one.

A graph repeats exactly the launches it recorded, on the same memory. So a recorded function takes no arguments, keeps
its state in tensors that it updates in place, and never reads a value on the host. Random numbers come from `draw`.
"""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Generic, Literal, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


class Captured(Generic[T]):
    """A function that is called normally the first time, recorded the second time, and replayed from then on.

    The first call does what must not be recorded: it compiles kernels and allocates storage. Every replay returns the
    same object, with new numbers in its tensors. `generators` advance as they would without a graph. `around` is
    entered while recording. On a CPU, or if not `enabled`, the function is simply called.
    """

    def __init__(
        self,
        run: Callable[[], T],
        device: torch.device,
        generators: Iterable[torch.Generator] = (),
        around: Callable[[], AbstractContextManager[None]] = nullcontext,
        *,
        enabled: bool = True,
        mode: Literal["global", "thread_local"] = "global",
    ) -> None:
        """`mode` is CUDA's capture error mode: unsafe calls of any thread, or only of this one, abort the recording."""
        self._run, self._generators, self._around = run, tuple(generators), around
        self._enabled, self._mode = enabled and device.type == "cuda", mode
        self._stream = torch.cuda.Stream(device) if self._enabled else None
        self._graph: torch.cuda.CUDAGraph | None = None
        self._result: list[T] = []
        """Empty until recorded."""
        self._warm = False

    def __call__(self) -> T:
        if not self._enabled:
            return self._run()
        if not self._warm:
            self._warm = True
            return self._warm_up()
        if self._graph is None:
            self._graph = self._record()
        self._graph.replay()
        return self._result[0]

    def _warm_up(self) -> T:
        """A normal call, on the stream that will be recorded."""
        assert self._stream is not None
        current = torch.cuda.current_stream(self._stream.device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            result = self._run()
        current.wait_stream(self._stream)
        return result

    def _record(self) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        for generator in self._generators:
            graph.register_generator_state(generator)
        with torch.cuda.graph(graph, stream=self._stream, capture_error_mode=self._mode), self._around():
            self._result.append(self._run())
        return graph


Source = torch.Generator | tuple[torch.Generator, ...]
"""A generator, or one for each of the runs that train side by side, which have equal blocks of environments."""


def draw(source: Source, rows: int, sample: Callable[[torch.Generator, int], Tensor]) -> Tensor:
    """Random numbers `[rows, ...]`. `sample(generator, n)` draws n rows; each run draws its own, as it would alone."""
    if not isinstance(source, tuple):
        return sample(source, rows)
    return torch.cat([sample(generator, rows // len(source)) for generator in source])


def generators_of(*sources: Source) -> tuple[torch.Generator, ...]:
    """All generators in `sources`."""
    return tuple(one for source in sources for one in (source if isinstance(source, tuple) else (source,)))
