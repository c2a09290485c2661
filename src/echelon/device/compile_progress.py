"""A progress message on standard error while GPU kernels compile."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

QUIET_SECONDS = 2.0
"""Seconds before the first message."""
POLL_SECONDS = 0.5
"""Seconds between looks into the cache: kernels that are only loaded from it get no message."""


@contextmanager
def announced(cache: Path, once: str) -> Iterator[None]:
    """Show progress while kernels are compiled into `cache`, and in the end how long it took.

    `once` says what they are compiled for: "for this scene".
    """
    began, before, over = time.monotonic(), _files(cache), threading.Event()
    redraws = sys.stderr.isatty()

    def show() -> None:
        if over.wait(QUIET_SECONDS):
            return
        while _files(cache) == before:
            if over.wait(POLL_SECONDS):
                return
        print(f"compiling GPU kernels, once {once}", end="" if redraws else "\n", file=sys.stderr, flush=True)
        while redraws and not over.wait(1.0):
            text = f"\rcompiling GPU kernels, once {once}: {time.monotonic() - began:.0f} s"
            print(text, end="", file=sys.stderr, flush=True)

    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        seconds = time.monotonic() - began
        if seconds > QUIET_SECONDS and _files(cache) > before:
            text = f"compiled GPU kernels in {seconds:.0f} s; the next start finds them in {cache}"
            print("\r" + text if redraws else text, file=sys.stderr, flush=True)


def _files(cache: Path) -> int:
    """Number of files that Warp or torch's compiler have written into the cache."""
    try:
        return sum(1 for _ in cache.glob("*/*"))
    except FileNotFoundError:  # a compiler has renamed a folder meanwhile
        return 0
