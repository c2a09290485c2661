"""Somebody is waiting for kernels to compile: say so, and for how long."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PATIENCE = 2.0
"""Seconds before anything is said. Kernels that were compiled before load in less."""


@contextmanager
def announced(cache: Path, once: str) -> Iterator[None]:
    """Show progress on standard error while kernels are compiled into `cache`, and in the end how long it took.

    `once` says what they serve: "for this scene".
    """
    began, before, over = time.monotonic(), _entries(cache), threading.Event()
    redraws = sys.stderr.isatty()

    def show() -> None:
        if over.wait(PATIENCE):
            return
        print(f"compiling GPU kernels, once {once}", end="" if redraws else "\n", file=sys.stderr, flush=True)
        while redraws and not over.wait(1.0):
            text = f"\rcompiling GPU kernels, once {once}: {time.monotonic() - began:.0f} s, "
            print(f"{text}{_entries(cache) - before} modules", end="", file=sys.stderr, flush=True)

    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        modules, seconds = _entries(cache) - before, time.monotonic() - began
        if modules and seconds > PATIENCE:
            print(
                f"{chr(13) if redraws else ''}compiled {modules} modules of GPU kernels in {seconds:.0f} s; "
                f"the next start finds them in {cache}",
                file=sys.stderr,
                flush=True,
            )


def _entries(cache: Path) -> int:
    """Modules in the cache."""
    return sum(1 for _ in cache.iterdir()) if cache.is_dir() else 0
