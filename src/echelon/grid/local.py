"""Train jobs on this machine, several at a time."""

import os
import queue
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from echelon.grid.jobs import Job
from echelon.grid.process import Outcome, train_job

POLL_S = 0.25


class LocalPool:
    """Processes on this machine, `workers` at a time. On a CPU each has cores of its own, because physics takes every
    core it sees; with several GPUs each has one."""

    def __init__(self, logs: Path, workers: int) -> None:
        self._logs, self._workers = logs, workers
        self._slots: queue.SimpleQueue[int] = queue.SimpleQueue()
        for slot in range(workers):
            self._slots.put(slot)
        self._threads, self._stopping = ThreadPoolExecutor(workers), threading.Event()

    def submit(self, job: Job, node_file: Path) -> "Future[Outcome]":
        """Train the job as soon as there is room."""
        return self._threads.submit(self._train, job, node_file)

    def _train(self, job: Job, node_file: Path) -> Outcome:
        slot = self._slots.get()
        try:
            variables, cores = {}, []
            if job.config.device == "cuda" and len(gpus := visible_gpus()) > 1:
                variables = {"CUDA_VISIBLE_DEVICES": gpus[slot % len(gpus)]}
            elif self._workers > 1 and (cores := visible_cores()):
                cores = cores[slot % len(cores) :: self._workers]
            return train_job(job, self._logs, node_file, self._pause, variables=variables, cores=cores)
        finally:
            self._slots.put(slot)

    def _pause(self) -> None:
        if self._stopping.wait(POLL_S):
            raise KeyboardInterrupt

    def close(self) -> None:
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
