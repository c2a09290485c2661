"""Calls to the store, in a thread: a store that is slow or away must not hold up training."""

import threading
import time
from collections.abc import Callable
from typing import Any


class Work:
    """One call at a time. Its result waits until it is asked for."""

    def __init__(self) -> None:
        self._done = threading.Event()
        self._done.set()
        self._result: Any = None
        self._error: Exception | None = None
        self._then: Callable[[Any], None] | None = None
        self._began = 0.0
        self.answered = 0
        """Calls that went well."""

    def start(self, run: Callable[[], Any], then: Callable[[Any], None]) -> None:
        """`then` is called with what `run` returned, by `take`, in the thread that calls that."""
        assert self._then is None
        self._done, self._then, self._began = threading.Event(), then, time.monotonic()
        self._result = self._error = None
        # Not waited for where the process ends: a store may hang for ever.
        threading.Thread(target=self._run, args=(run, self._done), daemon=True).start()

    def _run(self, run: Callable[[], Any], done: threading.Event) -> None:
        try:
            self._result = run()
        except Exception as error:  # a store's library raises what it likes
            self._error = error
        done.set()

    @property
    def idle(self) -> bool:
        return self._then is None

    @property
    def seconds(self) -> float:
        """Since the call under way began."""
        return 0.0 if self.idle else time.monotonic() - self._began

    def take(self, timeout: float = 0.0) -> Exception | None:
        """Hand on the result, if it is there within `timeout` seconds; what went wrong, if something did."""
        if self._then is None or not self._done.wait(timeout):
            return None
        then, self._then = self._then, None
        error, result = self._error, self._result
        if error is None:
            self.answered += 1
            then(result)  # which may start another
        return error
