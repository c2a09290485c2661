"""Train jobs on the nodes of a Ray cluster. Ray decides what runs where and starts a lost node's jobs again; what is
done, and where a job resumes, is read from the run folders, which all nodes share."""

import logging
import os
import secrets
import socket
import time
import warnings
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from echelon import __version__
from echelon.errors import UserError, first_line, require_package
from echelon.grid.jobs import Job
from echelon.grid.local import INTERRUPTED, POLL_S, train_job

CLIENT = "ray://"
SHARED_WAIT_S = 60.0
"""Time after which a file that another machine wrote is surely seen, also by NFS with its usual caches."""
SHUTDOWN_S = 30.0
"""A machine that is shut down ends its processes in any order. So the end of a job by a signal is reported after this
time: if the node goes too, Ray starts the job again elsewhere, and it has not failed."""


class RayCluster:
    """A connection to Ray: the cluster at an address, or the one of this machine, which is started if none runs."""

    def __init__(self, address: str, *, per_gpu: int = 1, cpus: int | None = None) -> None:
        """`address` is `ray` or `ray://HOST:PORT`. `per_gpu` runs share a GPU. Each reserves `cpus`: unless given, one
        beside a GPU, else all of the smallest node, because physics takes all of them."""
        require_address(address)
        self._ray, self._per_gpu = _connect(address), per_gpu
        self.device = "cuda" if self._ray.cluster_resources().get("GPU", 0) else "cpu"
        sizes = [node["Resources"].get("CPU", 0) for node in self._ray.nodes() if node["Alive"]]
        smallest = int(min((size for size in sizes if size >= 1), default=1))
        self._cpus = cpus or (1 if self.device == "cuda" else smallest)
        self._task = self._ray.remote(max_retries=-1)(train_on_node)
        self._running: dict[Any, Future[int]] = {}

    def submit(self, job: Job, state: Path) -> "Future[int]":
        """Hand the job to Ray, which starts jobs in the order in which they come, and again if their node is lost; the
        future's result is that of `train_job`."""
        options: dict[str, Any] = {"num_cpus": self._cpus, "name": job.name}
        if job.config.device == "cuda":
            options["num_gpus"] = int(10_000 / self._per_gpu) / 10_000  # rounded down so that all of them fit
        reference = self._task.options(**options).remote(job.to_json(), state, __version__)
        return self._running.setdefault(reference, reference.future())

    @property
    def room(self) -> int:
        """Jobs that the cluster has room for at once, as it is now."""
        there = self._ray.cluster_resources()
        return max(1, int(there.get("GPU", 0)) * self._per_gpu or int(there.get("CPU", 0)) // self._cpus)

    def stop(self) -> None:
        """Let running jobs save their state and end."""
        for reference, future in self._running.items():
            if not future.done():
                self._ray.cancel(reference)
        wait(self._running.values())
        self._running.clear()

    def close(self) -> None:
        """Disconnect."""
        self._ray.shutdown()


def require_address(address: str) -> None:
    """Raise a `UserError` for an address that is not one of a cluster."""
    if address != "ray" and not (address.startswith(CLIENT) and len(address) > len(CLIENT)):
        raise UserError(f"--on takes ray, or the address of a Ray cluster as in ray://head:10001, not {address!r}")
    require_package("ray", "--on", "ray")


def _connect(address: str) -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no usage statistics
    where = address if address.startswith(CLIENT) else None
    asked, options = where or os.environ.get("RAY_ADDRESS", ""), dict[str, Any]()
    if not asked and not Path(os.environ.get("RAY_TMPDIR", "/tmp"), "ray", "ray_current_cluster").exists():
        # Ray is started here. By default it would listen on every network, and run what anyone sends to it.
        where, options["include_dashboard"] = "local", False
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # on 127.0.0.1, as it does on those systems
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    import ray  # which reads these variables

    try:  # Ray would wait for minutes where nothing listens
        place = urlsplit(asked if "://" in asked else f"//{asked}")
        if place.hostname and place.port:  # RAY_ADDRESS may also be a word
            socket.create_connection((place.hostname, place.port), timeout=10.0).close()
    except (OSError, ValueError) as error:
        raise UserError(f"nothing answers at {asked} ({first_line(error)}); see ray status there") from None
    try:
        with warnings.catch_warnings(action="ignore"):  # what matters is in the error
            ray.init(where, log_to_driver=False, logging_level=logging.ERROR, configure_logging=False, **options)
    except Exception as error:  # refused, timed out, other versions of Python or Ray
        raise UserError(
            f"Ray cannot be reached at {address} ({first_line(error)}); see ray status there, and set "
            "RAY_AUTH_MODE=token here if it wants a token"
        ) from None
    return ray


def train_on_node(document: str, state: Path, version: str) -> int:
    """Train the job in a Ray task. Ray's cancel arrives as a KeyboardInterrupt. When Ray ends the worker around it,
    because the command that started the grid was killed, the job's process notices and ends too."""
    import ray

    require_fit(state, version)
    job, node = Job.from_json(document), ray.get_runtime_context().get_node_id()
    if job.done:  # before its node was lost
        return 0
    code = train_job(job, state, lambda: time.sleep(POLL_S), node=f"{socket.gethostname()}/{node[:4]}")
    if code < 0 or code == INTERRUPTED:
        time.sleep(SHUTDOWN_S)
    return code


def require_fit(state: Path, version: str) -> None:
    """Raise a `UserError` if this machine cannot train jobs of the grid whose folder `state` is."""
    why, deadline = "", time.monotonic() + SHARED_WAIT_S
    while not state.exists() and time.monotonic() < deadline:
        time.sleep(1)
    if __version__ != version:
        why = f"it has echelon {__version__}, not {version}; install the same version on all machines"
    elif not state.exists():
        why = f"it does not see the files in {state.parent}; pass --out with a folder that all machines share"
    elif not os.access(state, os.W_OK):
        why = f"it cannot write into {state.parent}; pass --out with a folder that all machines may write"
    if why:
        raise UserError(f"{socket.gethostname()} cannot train: {why}")
