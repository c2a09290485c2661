"""What is drawn on a terminal: a line that is overwritten, and a table that a `^C` does not shift."""

import contextlib
import os
import sys
from typing import Any


def show_progress(text: str) -> None:
    """One line on standard error that each text overwrites, and an empty one removes; nothing where nobody watches."""
    if sys.stderr.isatty():
        line = f"measuring: {text}" if text else ""
        print(f"\r{line:<60}", end="" if text else "\r", file=sys.stderr, flush=True)


class QuietTerminal:
    """Between `enter` and `leave`, control keys leave no trace: a `^C` would shift the table by a line.

    Only their echo is turned off, so that a process that is killed in between leaves a terminal one can work with.
    """

    def __init__(self) -> None:
        self._before: Any = None

    def enter(self) -> None:
        """Turn that echo off, where standard input is our terminal."""
        if not _in_foreground():
            return
        import termios

        with contextlib.suppress(termios.error):
            self._before = termios.tcgetattr(sys.stdin)
            quiet = [*self._before]
            quiet[3] &= ~termios.ECHOCTL
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, quiet)

    def leave(self) -> None:
        """Put the terminal back as it was."""
        if self._before is None or not _in_foreground():
            return
        import termios

        with contextlib.suppress(termios.error):
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._before)
        self._before = None


def _in_foreground() -> bool:
    """Whether the terminal is ours to change: the system stops a background job that tries."""
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (AttributeError, OSError, ValueError):  # Windows; no terminal; no standard input.
        return False
