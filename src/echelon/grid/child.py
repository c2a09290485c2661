"""The process of a job: `python -m echelon.grid.child train|evaluate`.

It reads the job from its standard input, which its parent then holds open. When that closes, because the parent wants
it to stop or was killed, it ends like a run that gets SIGTERM: it finishes and saves the iteration. No orphan trains.
"""

import os
import signal
import sys
import threading

from echelon.errors import UserError
from echelon.grid.jobs import Job
from echelon.grid.process import INTERRUPTED, LOCKED
from echelon.runs.folder import Held, RunFolder


def main(what: str) -> int:
    """Train or evaluate; the exit code is that of `echelon train` or `echelon evaluate`."""
    job = Job.from_json(sys.stdin.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        if what == "train":
            from echelon.console.view import PlainView
            from echelon.training.loop import train

            train(job.config, PlainView())
        else:
            from echelon.evaluation.evaluate import evaluate
            from echelon.runs.evaluations import write_evaluation

            folder = RunFolder.open(job.path)
            write_evaluation(evaluate(folder, device=job.config.device), folder.evaluation)
    except Held:
        return LOCKED
    except UserError as error:
        print(f"echelon: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def _end_with_parent() -> None:
    while os.read(0, 1):  # not sys.stdin, whose lock this thread would hold when the interpreter ends
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
