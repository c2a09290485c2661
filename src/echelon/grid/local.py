"""Train jobs on this machine, several at a time, each in processes of its own: a crash leaves the others alone.

A process reads its job from its standard input, which its parent then holds open. When that closes, because the parent
wants it to stop or was killed, it ends like a run that gets SIGTERM: it saves the iteration. No orphan trains.
"""

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from echelon.errors import UserError
from echelon.grid.jobs import Job
from echelon.runs.folder import Held, RunFolder, is_held

POLL_S = 0.25
SAVING_TIME_S = 120.0
"""Time a process has to finish its iteration before it is killed."""
LOCKED = 75
"""Exit code if another process trains the run, as with two grids on one folder."""
INTERRUPTED = 130
"""Exit code after a signal upon which the state was saved."""
CHILD = "from echelon.grid.local import main; main()"


class LocalPool:
    """Trains `workers` jobs at a time. On a CPU each has cores of its own, because physics takes every core it sees;
    with several GPUs each has one."""

    def __init__(self, workers: int) -> None:
        self._workers, self._stopping, self._thread = workers, threading.Event(), threading.local()
        slots = itertools.count()
        self._threads = ThreadPoolExecutor(workers, initializer=lambda: setattr(self._thread, "slot", next(slots)))

    def submit(self, job: Job, state: Path) -> "Future[int]":
        """Call `train_job` as soon as there is room."""
        return self._threads.submit(self._train, job, state)

    def _train(self, job: Job, state: Path) -> int:
        gpu, cores, slot = "", [], self._thread.slot
        if job.config.device == "cuda" and len(gpus := visible_gpus()) > 1:
            gpu = gpus[slot % len(gpus)]
        elif self._workers > 1 and (cores := visible_cores()):
            cores = cores[slot % len(cores) :: self._workers]
        return train_job(job, state, self._pause, gpu=gpu, cores=cores)

    def _pause(self) -> None:
        if self._stopping.wait(POLL_S):
            raise KeyboardInterrupt

    def stop(self) -> None:
        """Let running jobs save their state and end."""
        self._stopping.set()
        self._threads.shutdown(cancel_futures=True)


def default_workers(device: str) -> int:
    """One per GPU. On a CPU one per two cores: an iteration is partly physics on all cores, partly torch on one."""
    return max(1, len(visible_gpus()) if device == "cuda" else len(visible_cores()) // 2)


def visible_gpus() -> list[str]:
    """The GPUs that this process may use, as `CUDA_VISIBLE_DEVICES` names them."""
    import torch

    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return named.split(",") if named else [str(gpu) for gpu in range(torch.cuda.device_count())]


def visible_cores() -> list[int]:
    """The cores that this process may use; none where the system does not say."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def train_job(
    job: Job, state: Path, pause: Callable[[], None], *, node: str = "", gpu: str = "", cores: Sequence[int] = ()
) -> int:
    """Train the job, then evaluate it if it should be, as far as that was not done before; the exit code of the last
    process. The run folder, not the code, says whether it is done.

    `pause` sleeps a moment; when it raises, the process saves its state and ends. Processes run on that `gpu`, or any,
    and those `cores`. A file of the job's name in the folder `state` says on which `node` they were started.
    """
    if is_held(job.path):  # by another grid, or by a process of one that was killed and is still saving
        pause()
        return LOCKED
    (state / job.name).write_text(node)
    code = 0
    if not job.trained:
        code = _call_child(job, state, pause, gpu, cores)
    if job.trained and not job.done:
        code = _call_child(job, state, pause, gpu, cores)
    return code


def _call_child(job: Job, state: Path, pause: Callable[[], None], gpu: str, cores: Sequence[int]) -> int:
    with job.log(state).open("ab") as out:
        process = subprocess.Popen(
            [sys.executable, "-c", CHILD],
            env=os.environ | ({"CUDA_VISIBLE_DEVICES": gpu} if gpu else {}),
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # so that Ctrl-C reaches it once, through its parent
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


def main() -> None:
    """In its own process: train the job, or evaluate it if it is trained."""
    job = Job.from_json(sys.stdin.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        if not job.trained:
            from echelon.console.view import PlainView
            from echelon.training.callbacks import Stop
            from echelon.training.loop import train

            train(job.config, PlainView(), callbacks=lambda _: Stop(why) if (why := job.pruned) else None)
        else:
            from echelon.evaluation.evaluate import evaluate
            from echelon.runs.evaluations import write_evaluation

            folder = RunFolder.open(job.path)
            write_evaluation(evaluate(folder, device=job.config.device), folder.evaluation)
    except Held:
        sys.exit(LOCKED)
    except UserError as error:
        print(f"echelon: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _end_with_parent() -> None:
    while os.read(0, 1):  # not sys.stdin, whose lock this thread would hold when the interpreter ends
        pass
    os.kill(os.getpid(), signal.SIGTERM)
