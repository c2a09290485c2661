"""The nodes of a Ray cluster as a place to train cells. Ray decides what runs where and starts a lost node's cells
again; what is done, and where a cell goes on, is read from the run folders, which all nodes share."""

import json
import logging
import math
import os
import socket
import time
import uuid
import warnings
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from echelon.errors import UserError, first_line, require_package
from echelon.grid.cells import Cell
from echelon.grid.node import Outcome, Ticket, measure_memory, node_file, train_cell
from echelon.grid.pool import POLL_S, Finished
from echelon.grid.process import write_settings
from echelon.grid.share import measured_runs_per_gpu, memory_file
from echelon.runs.durable import writing

RAY = "ray"
CLIENT = "ray://"
MOST_PER_GPU = 4
"""Runs that share a GPU unless somebody asks for another number: more of them only slow each other down."""
ANSWER_S = 10.0
"""Seconds that a cluster has to answer."""
LOOK_S = 1.0
"""Seconds between looks at the nodes."""
FEW_WAITING = 2
"""Cells that may always wait for a node."""
PATIENCE_S = 60.0
"""Seconds without a running cell after which the user is told."""


class RayCluster:
    """A connection to Ray: the cluster at an address, or the one of this machine, which is started if none runs."""

    def __init__(self, address: str, *, per_gpu: int = MOST_PER_GPU, cpus: int | None = None) -> None:
        """`address` is `ray` or `ray://HOST:PORT`. Each run reserves `cpus`; unless given, one beside a GPU, else all
        of the smallest node, since physics takes all of them."""
        require_address(address)
        self._per_gpu, self._cpus = per_gpu, cpus
        self._ray = _connect(address)

    @property
    def device(self) -> str:
        """What its nodes train on."""
        return "cuda" if self._ray.cluster_resources().get("GPU", 0) else "cpu"

    def pool(self, logs: Path, finished: Finished) -> "RayPool":
        """A place to train the cells of one grid."""
        cpus = self._cpus or (1 if self.device == "cuda" else self._smallest_node())
        return RayPool(self._ray, logs, finished, cpus, self._per_gpu)

    def _smallest_node(self) -> int:
        sizes = [node["Resources"].get("CPU", 0) for node in self._ray.nodes() if node["Alive"]]
        return int(min((size for size in sizes if size >= 1), default=1))

    def close(self) -> None:
        self._ray.shutdown()


def require_address(address: str) -> None:
    """Raise a `UserError` for what is no place to train."""
    if address != RAY and not (address.startswith(CLIENT) and len(address) > len(CLIENT)):
        raise UserError(f"--on takes ray, or the address of a Ray cluster as in ray://head:10001, not {address!r}")
    require_package("ray", "--on", "ray")


def _connect(address: str) -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # what somebody trains is nobody's business
    import ray

    where = address if address.startswith(CLIENT) else None
    _require_answer(where or os.environ.get("RAY_ADDRESS", ""))
    try:
        with warnings.catch_warnings(action="ignore"):  # what matters is in the error
            ray.init(where, log_to_driver=False, logging_level=logging.ERROR, configure_logging=False)
    except Exception as error:  # whatever Ray has to say: refused, timed out, other versions of Python or Ray
        raise UserError(
            f"Ray cannot be reached at {address} ({first_line(error)}); see ray status there, and set "
            "RAY_AUTH_MODE=token here if it wants a token"
        ) from None
    return ray


def _require_answer(address: str) -> None:
    """Raise a `UserError` where nothing listens, for which Ray would wait for minutes."""
    try:
        place = urlsplit(address if "://" in address else f"//{address}")
        if place.hostname and place.port:  # RAY_ADDRESS may also be a word
            socket.create_connection((place.hostname, place.port), ANSWER_S).close()
    except (OSError, ValueError) as error:
        raise UserError(f"nothing answers at {address} ({first_line(error)}); see ray status there") from None


class RayJob:
    """A task of Ray that trains a cell."""

    def __init__(self, ray: Any, task: Any) -> None:
        self._ray, self.task = ray, task
        self.node: str | None = None
        self.node_id = ""
        self._outcome: Outcome | None = None
        self._ended = False

    def end(self) -> Outcome:
        """Note that the task has ended, and how."""
        self._ended, self._outcome = True, _outcome(self._ray, self.task)
        return self._outcome

    def ended(self) -> bool:
        return self._ended

    @property
    def held(self) -> bool:
        """Whether the cell should be tried again: another process trains it, or the node could not."""
        return self._outcome is not None and (self._outcome.held or self._outcome.misfit is not None)

    def failure(self) -> str:
        return self._outcome.failure if self._outcome and self._outcome.failure else "it ended before it was done"

    def ask_to_stop(self) -> None:
        self._ray.cancel(self.task)

    def wait(self) -> None:
        _outcome(self._ray, self.task)


def _outcome(ray: Any, task: Any) -> Outcome:
    """How a task ended, once it has."""
    try:
        return ray.get(task)
    except ray.exceptions.TaskCancelledError:
        return Outcome(failure="it was stopped")
    except ray.exceptions.RayTaskError as error:
        return Outcome(failure=f"{type(error.cause).__name__} on its node: {first_line(error.cause)}")
    except ray.exceptions.RayError as error:
        return Outcome(failure=f"Ray gave it up: {first_line(error)}")


class RayPool:
    """The nodes of a cluster, for the cells of one grid."""

    def __init__(self, ray: Any, logs: Path, finished: Finished, cpus: int, per_gpu: int) -> None:
        self._ray, self._logs, self._finished = ray, logs, finished
        self._cpus, self._per_gpu = cpus, per_gpu
        self._ticket = Ticket(logs, f".grid-{uuid.uuid4().hex}")
        with writing(logs / self._ticket.token):
            (logs / self._ticket.token).touch()
        self._jobs: dict[str, RayJob] = {}
        self._said: dict[str, str | None] = {}
        self._measuring: dict[Path, Any] = {}
        self._left_out: list[str] = []
        """Ids of nodes that cannot train."""
        self._misfit = ""
        """Why the last of them cannot."""
        self._news: list[str] = []
        self._nodes = 0
        """How many there were at the last look."""
        self._looked = 0.0
        self._patient_until = time.monotonic() + PATIENCE_S

    def has_room(self, cell: Cell, jobs: int) -> bool:
        """Ray starts what waits in any order, so few cells do, to have first seeds first; but as many as there are
        nodes, so that a cluster which grows with its work doubles. A GPU cell is measured before."""
        waiting = sum(job.node is None for job in self._jobs.values())
        if waiting >= max(FEW_WAITING, self._nodes):
            return False
        return cell.config.device != "cuda" or self._runs_per_gpu(cell) is not None

    def start(self, cell: Cell) -> RayJob:
        node_file(self._logs, cell.name).unlink(missing_ok=True)
        self._jobs[cell.name] = RayJob(self._ray, self._submit(cell))
        return self._jobs[cell.name]

    def finish(self, cell: Cell) -> str | None:
        if cell.name not in self._said:
            self._said[cell.name] = _outcome(self._ray, self._submit(cell)).said
        return self._said[cell.name]

    def watch(self) -> None:
        jobs = {job.task: name for name, job in self._jobs.items()}
        if not jobs:
            return time.sleep(POLL_S)
        self._ray.wait([*jobs], num_returns=1, timeout=POLL_S)
        ended, _ = self._ray.wait([*jobs], num_returns=len(jobs), timeout=0)
        if ended or time.monotonic() >= self._looked + LOOK_S:  # what has ended may have changed its node before
            self._looked = time.monotonic()
            self._look_at_nodes()
        for task in ended:
            self._take_in(jobs[task])

    def news(self) -> list[str]:
        news, self._news = self._news, []
        return news

    def close(self) -> None:
        (self._logs / self._ticket.token).unlink(missing_ok=True)
        for name in self._jobs:
            node_file(self._logs, name).unlink(missing_ok=True)

    def _submit(self, cell: Cell) -> Any:
        """Ray starts the task again wherever there is room when a node is lost, however often."""
        options: dict[str, Any] = {"num_cpus": self._cpus, "max_retries": -1, "name": cell.name}
        if cell.config.device == "cuda":
            options["num_gpus"] = gpu_part(measured_runs_per_gpu(cell, self._logs, self._per_gpu) or 1)
        if self._left_out:
            options["label_selector"] = {"ray.io/node-id": f"!in({','.join(self._left_out)})"}
        task = self._ray.remote(**options)(train_cell)
        return task.remote(write_settings(cell, self._logs), self._ticket, self._finished)

    def _take_in(self, name: str) -> None:
        """The task of a cell has ended."""
        outcome = self._jobs.pop(name).end()
        node_file(self._logs, name).unlink(missing_ok=True)
        self._said[name] = outcome.said
        if outcome.misfit is not None and outcome.node not in self._left_out:
            self._left_out.append(outcome.node)
            self._misfit = outcome.misfit
            self._news.append(f"left out: {outcome.misfit}")

    def _runs_per_gpu(self, cell: Cell) -> int | None:
        """How many cells of this kind fit on a GPU; None while that is being measured."""
        known = measured_runs_per_gpu(cell, self._logs, self._per_gpu)
        if known is not None or self._per_gpu == 1:
            return known or 1
        file = memory_file(cell, self._logs)
        if file not in self._measuring:
            self._news.append(f"measuring what {cell.config.task}, {cell.config.method} takes of a GPU")
            task = self._ray.remote(num_cpus=self._cpus, num_gpus=1, max_retries=-1)(measure_memory)
            self._measuring[file] = task.remote(write_settings(cell, self._logs), self._ticket)
        if not self._ray.wait([self._measuring[file]], timeout=0)[0]:
            return None
        # It could not be measured, and training it will say why.
        return measured_runs_per_gpu(cell, self._logs, self._per_gpu) or 1

    def _look_at_nodes(self) -> None:
        """Which job trains where, by the files that the jobs leave, if Ray still has that node."""
        alive = {node["NodeID"]: node for node in self._ray.nodes() if node["Alive"]}
        self._nodes = len(alive)
        hosts = [node["NodeManagerHostname"] for node in alive.values()]
        for name, job in self._jobs.items():
            try:
                place = json.loads(node_file(self._logs, name).read_text())
            except (OSError, ValueError):  # it waits, or the file is being written
                continue
            if place["id"] not in alive:
                job.node, job.node_id = None, ""
            elif place["id"] != job.node_id:
                job.node_id = place["id"]
                job.node = f"{place['host']}/{place['id'][:4]}" if hosts.count(place["host"]) > 1 else place["host"]
        self._require_nodes(alive)

    def _require_nodes(self, alive: dict[str, Any]) -> None:
        """Stop if no node can train; say so if none has room."""
        useful = [id for id, node in alive.items() if node["Resources"].get("CPU", 0) >= self._cpus]
        if useful and set(useful) <= set(self._left_out):
            raise UserError(f"no node can train: {self._misfit}")
        if any(job.node for job in self._jobs.values()):
            self._patient_until = time.monotonic() + PATIENCE_S
        elif self._jobs and time.monotonic() > self._patient_until:
            self._patient_until = math.inf
            self._news.append(f"Ray has no room for a run, which reserves {self._cpus} CPUs; see ray status")


def gpu_part(runs: int) -> float:
    """What one of so many runs takes of a GPU, as Ray counts: in ten-thousandths, rounded down so that all fit."""
    return int(10_000 / runs) / 10_000
