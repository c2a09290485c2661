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
def announced(cache: Path) -> Iterator[None]:
    """Show progress on standard error while Warp compiles into its kernel `cache`, and in the end how long it took."""
    began, before, over = time.monotonic(), _entries(cache), threading.Event()
    redraws = sys.stderr.isatty()

    def show() -> None:
        if over.wait(PATIENCE):
            return
        print("compiling GPU kernels, once for this scene", end="" if redraws else "\n", file=sys.stderr, flush=True)
        while redraws and not over.wait(1.0):
            text = f"\rcompiling GPU kernels, once for this scene: {time.monotonic() - began:.0f} s, "
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
