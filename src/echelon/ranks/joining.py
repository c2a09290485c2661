"""Join the processes that torchrun started, by its environment variables.

Imports no torch for a process that is started alone.
"""

import atexit
import os
import secrets
import time
from datetime import timedelta
from typing import TYPE_CHECKING

from echelon.errors import UserError, first_line
from echelon.ranks.ranks import ALONE, Ranks

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

NEEDED = ("RANK", "MASTER_ADDR", "MASTER_PORT")
"""Required beside WORLD_SIZE. Without LOCAL_RANK, each process has a machine of its own."""
MEETING = timedelta(minutes=5)
"""How long ranks wait for each other at the start; torchrun starts them together."""


def join() -> Ranks:
    """Join the ranks of this run; a process without torchrun's variables is alone."""
    size = os.environ.get("WORLD_SIZE", "1")
    if size == "1":
        return ALONE
    if not size.isdecimal() or int(size) == 0:
        raise UserError(f"WORLD_SIZE is {size!r}, not a number of processes; start it by torchrun")
    if missing := [name for name in NEEDED if name not in os.environ]:
        are = "is" if len(missing) == 1 else "are"
        raise UserError(f"WORLD_SIZE is {size}, but {', '.join(missing)} {are} missing; start it by torchrun")
    for name in ("RANK", "LOCAL_RANK"):
        value = os.environ.get(name, "0")
        if not value.isdecimal() or int(value) >= int(size):
            raise UserError(f"{name} is {value!r}, not a number below {size}; start it by torchrun")

    import torch.distributed as dist
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    from echelon.ranks.together import PATIENCE, Together

    if not dist.is_initialized():
        try:
            store, rank, world = next(rendezvous("env://", timeout=MEETING))
            store = PrefixStore(agreed_name(store, rank, world), store)
            store.set_timeout(PATIENCE)
            dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=PATIENCE)
        except (RuntimeError, ValueError) as error:
            rank = os.environ["RANK"]
            raise UserError(f"rank {rank} of {size} did not find the others ({first_line(error)})") from None
        atexit.register(_leave)
    return Together(int(os.environ.get("LOCAL_RANK", "0")))


def agreed_name(store: "Store", rank: int, size: int) -> str:
    """Agree on a name for this start of the ranks, which no earlier start had.

    torchrun keeps its store across restarts, with everything that lost ranks wrote, and machines count restarts
    differently. So each rank asks with a random word, which only a live rank 0 can answer.
    """
    if rank > 0:
        word = secrets.token_hex(8)
        store.set(f"asks-{rank}", word)
        name = store.get(f"answer-{word}").decode()  # waits for it
        store.set(f"{name}-{rank}", "here")
        return name
    name, deadline = f"start-{secrets.token_hex(8)}", time.monotonic() + MEETING.total_seconds()
    while absent := [other for other in range(1, size) if not store.check([f"{name}-{other}"])]:
        if time.monotonic() > deadline:
            raise RuntimeError(f"rank {absent[0]} did not answer for {MEETING.total_seconds() / 60:.0f} minutes")
        for other in absent:
            if store.check([f"asks-{other}"]):  # perhaps the word of a lost rank; a live one asks again
                store.set(f"answer-{store.get(f'asks-{other}').decode()}", name)
        time.sleep(0.02)
    return name


def _leave() -> None:
    """Destroy gloo's group at exit, or its threads abort the process. NCCL's stays: it would wait for lost ranks."""
    import torch.distributed as dist

    if dist.is_initialized() and len(dist.distributed_c10d._world.pg_map) == 1:
        dist.destroy_process_group()
