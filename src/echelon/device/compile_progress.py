"""Somebody is waiting for kernels to compile: say so, and for how long."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PATIENCE = 2.0
"""Seconds before anything is said."""
LOOK = 0.5
"""Seconds between looks into the cache. Kernels that are there already are loaded, which is nothing to announce."""


@contextmanager
def announced(cache: Path, once: str) -> Iterator[None]:
    """Show progress on standard error while kernels are compiled into `cache`, and in the end how long it took.

    `once` says what they serve: "for this scene".
    """
    began, before, over = time.monotonic(), _files(cache), threading.Event()
    redraws = sys.stderr.isatty()

    def show() -> None:
        if over.wait(PATIENCE):
            return
        while _files(cache) == before:
            if over.wait(LOOK):
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
        if seconds > PATIENCE and _files(cache) > before:
            print(
                f"{chr(13) if redraws else ''}compiled GPU kernels in {seconds:.0f} s; "
                f"the next start finds them in {cache}",
                file=sys.stderr,
                flush=True,
            )


def _files(cache: Path) -> int:
    """What Warp or torch's compiler have put into the folders of their cache."""
    return sum(1 for _ in cache.glob("*/*"))
