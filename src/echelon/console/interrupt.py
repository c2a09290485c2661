"""Ctrl-C, SIGTERM and a terminal that hangs up end a run between two iterations, so that nothing is lost."""

import signal
import threading
from types import FrameType, TracebackType

SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


class Interrupt:
    """While entered, the first SIGINT, SIGTERM or SIGHUP sets `asked`; a second SIGINT interrupts at once, as usual,
    and any further one is ignored."""

    def __init__(self) -> None:
        self.asked = False
        self._before: dict[int, object] = {}

    def __enter__(self) -> "Interrupt":
        if threading.current_thread() is threading.main_thread():  # elsewhere Python delivers no signals
            for number in SIGNALS:
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # pyright: ignore[reportArgumentType]  # what signal() returned

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.asked and number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # until this is left: what ends now need not be interrupted
            raise KeyboardInterrupt
        self.asked = True
