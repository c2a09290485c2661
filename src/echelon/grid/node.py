"""What runs on a node of a Ray cluster: the training of one cell, and a look whether the node can train at all.

A cell trains in a process of its own, as on one machine. A cancelled task lets it save its state. When Ray ends the
worker around it, because the command that started the grid was killed, it kills that process too: the cell goes on from
its last checkpoint.
"""

import json
import os
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from echelon import __version__
from echelon.grid.pool import POLL_S, Finished
from echelon.grid.process import CellProcess, read_settings
from echelon.grid.share import memory_file

SHARED_WAIT_S = 60.0
"""Time after which a file that another machine wrote is surely seen, also by NFS with its usual caches."""
SHUTDOWN_S = 30.0
"""A machine that is shut down ends its processes in any order. So the end of a cell by a signal is reported after this
time: if the node goes too, Ray starts the cell again elsewhere, and it has not failed."""


@dataclass(frozen=True)
class Ticket:
    """What a node must match to train cells of a grid."""

    logs: Path
    token: str
    """Name of a file that the grid wrote into `logs`."""
    version: str = __version__

    def misfit(self) -> str | None:
        """Why this machine cannot train cells of the grid; None if it can."""
        if __version__ != self.version:
            return f"it has echelon {__version__}, not {self.version}; install the same version on all machines"
        deadline = time.monotonic() + SHARED_WAIT_S
        while not (self.logs / self.token).exists():
            if time.monotonic() > deadline:
                return f"it does not see the files in {self.logs}; pass --out with a folder that all machines share"
            time.sleep(1)
        if not os.access(self.logs, os.W_OK):
            return f"it cannot write into {self.logs}; pass --out with a folder that all machines may write"
        return None


@dataclass(frozen=True)
class Outcome:
    """How the job of a cell ended. The run folder, not this, says whether the cell is done."""

    said: str | None = None
    """What `finished` returned."""
    failure: str = ""
    held: bool = False
    misfit: str | None = None
    """Why the node cannot train."""
    node: str = ""
    """Ray's id of the node."""


def node_file(logs: Path, name: str) -> Path:
    """Says where a cell trains."""
    return logs / f"{name}.node"


def train_cell(settings: Path, ticket: Ticket, finished: Finished) -> Outcome:
    """Train the cell until it is done or fails, or until Ray cancels the task: then it is saved."""
    import ray

    node = ray.get_runtime_context().get_node_id()
    if misfit := ticket.misfit():
        return Outcome(misfit=f"{socket.gethostname()}: {misfit}", node=node)
    cell = read_settings(settings)
    if not cell.done:
        node_file(ticket.logs, cell.name).write_text(json.dumps({"host": socket.gethostname(), "id": node}))
        process = CellProcess(cell, ticket.logs, settings)
        try:
            while not process.ended():
                time.sleep(POLL_S)
        except KeyboardInterrupt:  # as which Ray's cancel arrives
            process.ask_to_stop()
            process.wait()
            return Outcome(failure="it was stopped", node=node)
        if not cell.done:
            if process.interrupted:
                time.sleep(SHUTDOWN_S)
            return Outcome(failure=process.failure(), held=process.held, node=node)
    return Outcome(said=finished(cell), node=node)


def measure_memory(settings: Path, ticket: Ticket) -> None:
    """Write what a run of these settings takes of a GPU, which it has to itself."""
    cell = read_settings(settings)
    with (ticket.logs / f"{cell.name}.memory.log").open("wb") as log:
        command = [sys.executable, "-m", "echelon.grid.memory", str(settings), str(memory_file(cell, ticket.logs))]
        subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
