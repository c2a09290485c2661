"""The terminal is given back as it was found."""

import os
from typing import Any

import pytest

from echelon.console import terminal
from echelon.console.terminal import QuietTerminal

pty = pytest.importorskip("pty")
termios = pytest.importorskip("termios")


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Standard input as a terminal."""
    master, slave = pty.openpty()
    with os.fdopen(slave, "r") as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        yield stdin
    os.close(master)


def test_control_keys_are_quiet_only_in_between(stdin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "_in_foreground", lambda: True)
    before = termios.tcgetattr(stdin)
    assert before[3] & termios.ECHOCTL
    quiet = QuietTerminal()
    quiet.enter()
    assert not termios.tcgetattr(stdin)[3] & termios.ECHOCTL
    assert termios.tcgetattr(stdin)[3] & termios.ECHO
    quiet.leave()
    quiet.leave()
    assert termios.tcgetattr(stdin) == before


def test_a_terminal_that_is_not_ours_is_left_alone(stdin: Any) -> None:
    """A background job that changed it would be stopped by the system."""
    before = termios.tcgetattr(stdin)
    quiet = QuietTerminal()
    quiet.enter()
    assert termios.tcgetattr(stdin) == before
    quiet.leave()


def test_no_standard_input_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    QuietTerminal().enter()
