"""Train a job in a process of its own, so that a crash leaves the others alone, and evaluate it in another."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from echelon.grid.jobs import Job
from echelon.runs.folder import is_held

SAVING_TIME_S = 120.0
"""Time a process has to finish its iteration before it is killed."""
LOCKED = 75
"""Exit code if another process trains the run, as with two grids on one folder."""
INTERRUPTED = 130
"""Exit code after a signal upon which the state was saved."""


@dataclass(frozen=True)
class Outcome:
    """How a job ended. The run folder, not this, says whether it is done."""

    failure: str = ""
    locked: bool = False
    """Whether another process trains the run."""
    killed: bool = False
    """Whether a signal ended it."""
    unfit: str = ""
    """Why its node cannot train any job."""


def train_job(
    job: Job,
    logs: Path,
    node_file: Path,
    pause: Callable[[], None],
    *,
    node: str = "",
    variables: Mapping[str, str] | None = None,
    cores: Sequence[int] = (),
) -> Outcome:
    """Train the job, then evaluate it if it should be, as far as that was not done before.

    `node_file` then names the machine. `pause` sleeps a moment; when it raises, the process saves its state and ends.
    `variables` are set in its environment, and it runs on those `cores`. What it prints goes to `NAME.log` in `logs`.
    """
    if is_held(job.path):  # by another grid, or by a process of one that was killed and is still saving
        pause()
        return Outcome(locked=True)
    node_file.write_text(node)
    log, code = logs / f"{job.name}.log", 0
    if not job.trained:
        code = _run("train", job, log, pause, variables or {}, cores)
    if job.trained and not job.done:
        code = _run("evaluate", job, log, pause, variables or {}, cores)
    if code == 0:
        return Outcome(f"it ended before it was done; see {log}")
    how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    said = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    failure = f"its process ended with {how}" + (f": {said[-1].strip()}" if said else "")
    return Outcome(failure, locked=code == LOCKED, killed=code < 0 or code == INTERRUPTED)


def _run(
    what: str, job: Job, log: Path, pause: Callable[[], None], variables: Mapping[str, str], cores: Sequence[int]
) -> int:
    """Run a process that trains or evaluates; its exit code."""
    with log.open("ab") as out:
        # In a session of its own, so that Ctrl-C reaches it once, through its parent.
        process = subprocess.Popen(
            [sys.executable, "-m", "echelon.grid.child", what],
            env={**os.environ, **variables},
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    assert process.stdin is not None
    try:
        with contextlib.suppress(OSError):  # it ended at once, and its exit code says more
            if cores:
                os.sched_setaffinity(process.pid, cores)
            process.stdin.write(f"{job.to_json()}\n".encode())
            process.stdin.flush()
        while process.poll() is None:
            pause()
    finally:
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(SAVING_TIME_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    return process.returncode
