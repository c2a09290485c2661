"""End a run between two iterations on Ctrl-C, SIGTERM, SIGUSR1 or a terminal that hangs up, so that it is saved."""

import signal
import threading
from types import FrameType
from typing import Any

REQUEUE = [getattr(signal, name) for name in ("SIGTERM", "SIGUSR1") if hasattr(signal, name)]
"""Signals that a cluster sends before it takes a machine away."""
SIGNALS = [*REQUEUE, *(getattr(signal, name) for name in ("SIGINT", "SIGHUP") if hasattr(signal, name))]


class Preempted(KeyboardInterrupt):
    """The machine's scheduler, not the user, asked the run to end: it should be started again elsewhere."""


class Interrupt:
    """While entered, the first of the signals sets `asked`, and `requeue` if a cluster sent it. A second SIGINT
    interrupts at once, as usual, and any further one is ignored."""

    def __init__(self) -> None:
        self.asked = self.requeue = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Interrupt":
        if threading.current_thread() is threading.main_thread():  # elsewhere Python delivers no signals
            self._before = {number: signal.signal(number, self._handle) for number in SIGNALS}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.asked and number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # until exit: the run is already ending
            raise KeyboardInterrupt
        if not self.asked:
            self.requeue = number in REQUEUE
        self.asked = True
