"""A cell trains in a process of its own, so that a crash or a kill of one leaves the others alone.

The process watches the other end of its standard input, which its parent holds open. When that closes, because the
parent wants it to stop or is itself gone, killed or not, it ends like a run that gets SIGTERM: the iteration is
finished and saved. So no orphan goes on training.
"""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from echelon.grid.cells import Cell

PATIENCE_S = 120.0
"""Time a cell has to finish its iteration before it is killed."""


class CellProcess:
    """A cell that is being trained."""

    def __init__(self, cell: Cell, log: Path) -> None:
        """Start it; what it prints goes to the end of `log`."""
        self._log = log
        command = [sys.executable, "-m", "echelon.grid.process", cell.config.task, *cell.flags]
        with log.open("ab") as out:
            # In a session of its own, so that Ctrl-C reaches it once, through its parent.
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
            )

    def ended(self) -> bool:
        return self._process.poll() is not None

    def failure(self) -> str | None:
        """Why it ended, if not because it was done: its exit code, and the last thing it said."""
        code = self._process.returncode
        if code == 0:
            return None
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        said = [line for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
        return f"its process ended with {how}" + (f": {said[-1].strip()}" if said else "")

    def stop(self) -> None:
        """Let it save and end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _end_with_parent() -> None:
    """End this process once its standard input closes."""

    def watch() -> None:
        while os.read(0, 1):  # not sys.stdin, whose lock this thread would hold when the interpreter ends
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def main() -> int:
    """What the process runs: `echelon train`, which the run folder shall name as its command."""
    from echelon.cli import main as echelon

    _end_with_parent()
    sys.argv = ["echelon", "train", *sys.argv[1:]]
    return echelon()


if __name__ == "__main__":
    sys.exit(main())
