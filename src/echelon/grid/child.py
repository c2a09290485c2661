"""What the process of a cell runs: `python -m echelon.grid.child FILE` trains the config in that file."""

import json
import os
import signal
import sys
import threading
from pathlib import Path

from echelon.errors import UserError
from echelon.runs.lock import Held
from echelon.tasks import stored_config

HELD = 75
"""Exit code if another process trains the cell, as of two grids on one folder: to be tried again later."""
INTERRUPTED = 130
"""Exit code after a signal upon which the state was saved."""


def main(file: Path) -> int:
    """Train; the exit code is that of `echelon train`."""
    _end_with_parent()
    document = json.loads(file.read_text())
    sys.argv = document["command"]  # recorded in the run folder, as the command to repeat

    from echelon.console.view import PlainView
    from echelon.training.loop import train

    try:
        train(stored_config(document["config"]), PlainView())
    except Held:
        return HELD
    except UserError as error:
        print(f"echelon: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def _end_with_parent() -> None:
    """End this process once its standard input closes."""

    def watch() -> None:
        while os.read(0, 1):  # not sys.stdin, whose lock this thread would hold when the interpreter ends
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
