"""Recording device work as a CUDA graph: thousands of launches become one.

A graph repeats exactly the launches it saw, on the same memory. So what is recorded takes no arguments, keeps what
lives between calls in tensors that it updates in place, and never looks at a value on the host.
"""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Generic, TypeVar

import torch

T = TypeVar("T")


class Captured(Generic[T]):
    """A function that runs as it is at its first call, is recorded at the second, and is replayed from then on.

    The first call does what must not be recorded: it compiles kernels and allocates lasting storage. What the function
    returns is the same object at every replay, with new numbers in its tensors. Random numbers drawn from `generators`
    go on as they would have. `around` is entered while recording. On a CPU, or if not `enabled`, every call is plain.
    """

    def __init__(
        self,
        run: Callable[[], T],
        device: torch.device,
        generators: Iterable[torch.Generator] = (),
        around: Callable[[], AbstractContextManager[None]] = nullcontext,
        *,
        enabled: bool = True,
    ) -> None:
        self._run, self._generators, self._around = run, tuple(generators), around
        self._enabled = enabled and device.type == "cuda"
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
        """An ordinary call, on the stream that will be recorded."""
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
        with torch.cuda.graph(graph, stream=self._stream), self._around():
            self._result.append(self._run())
        return graph
