"""A cell trains in a process of its own, so that a crash or a kill of one leaves the others alone.

The process runs `echelon.grid.child`. It watches the other end of its standard input, which its parent holds open. When
that closes, because the parent wants it to stop or is itself gone, killed or not, it ends like a run that gets SIGTERM:
the iteration is finished and saved. So no orphan goes on training.
"""

import json
import signal
import subprocess
import sys
from pathlib import Path

from echelon.config import to_dict
from echelon.grid.cells import Cell
from echelon.grid.child import HELD, INTERRUPTED
from echelon.runs.durable import replace_durably, writing
from echelon.tasks import stored_config

SAVING_TIME_S = 120.0
"""Time a cell has to finish its iteration before it is killed."""


def write_settings(cell: Cell, logs: Path) -> Path:
    """`NAME.json` in the folder `logs`: what the process of a cell reads, with the command its run folder will name."""
    settings = logs / f"{cell.name}.json"
    document = {"command": sys.argv, "config": to_dict(cell.config)}
    with writing(settings):
        replace_durably(settings, json.dumps(document, indent=2).encode())
    return settings


def read_settings(settings: Path) -> Cell:
    """The cell whose settings were written there."""
    return Cell(settings.stem, stored_config(json.loads(settings.read_text())["config"]))


class CellProcess:
    """A cell that is being trained on this machine."""

    node = ""

    def __init__(self, cell: Cell, logs: Path, settings: Path | None = None) -> None:
        """Start it. It reads `settings`, or what is written for it now. In the folder `logs`, `NAME.log` gets what it
        prints."""
        self._log = logs / f"{cell.name}.log"
        settings = settings or write_settings(cell, logs)
        with self._log.open("ab") as out:
            # In a session of its own, so that Ctrl-C reaches it once, through its parent.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "echelon.grid.child", str(settings)],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def ended(self) -> bool:
        return self._process.poll() is not None

    @property
    def held(self) -> bool:
        """Whether it ended because another process trains the cell."""
        return self._process.returncode == HELD

    @property
    def interrupted(self) -> bool:
        """Whether it ended by a signal."""
        code = self._process.returncode
        return code is not None and (code < 0 or code == INTERRUPTED)

    def failure(self) -> str:
        """How it ended, and the last thing it said."""
        code = self._process.returncode
        if code == 0:
            return f"it ended before it was done; see {self._log}"
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        said = [line for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
        return f"its process ended with {how}" + (f": {said[-1].strip()}" if said else "")

    def ask_to_stop(self) -> None:
        """Let it save and end."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def wait(self) -> None:
        """Until it has ended; it is killed if that takes too long."""
        try:
            self._process.wait(SAVING_TIME_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
