"""From the environment variables that torchrun sets to ranks that have found each other.

Imports no torch: a process that is started alone has nothing to join.
"""

import atexit
import os

from echelon.errors import UserError, first_line
from echelon.ranks.ranks import ALONE, Ranks

NEEDED = ("RANK", "MASTER_ADDR", "MASTER_PORT")
"""Besides WORLD_SIZE. Where LOCAL_RANK is missing, each process has a machine of its own."""


def join() -> Ranks:
    """All ranks of this run. Processes that torchrun starts join each other, any other is alone."""
    size = os.environ.get("WORLD_SIZE", "1")
    if size == "1":
        return ALONE
    if missing := [name for name in NEEDED if name not in os.environ]:
        are = "is" if len(missing) == 1 else "are"
        raise UserError(f"WORLD_SIZE is {size}, but {', '.join(missing)} {are} missing; start it by torchrun")
    for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK"):
        value = os.environ.get(name, "0")
        if not value.isdigit() or (name != "WORLD_SIZE" and int(value) >= int(size)):
            raise UserError(f"{name} is {value!r}, not a number below {size}; start it by torchrun")

    import torch.distributed as dist
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    from echelon.ranks.together import PATIENCE, Together

    if not dist.is_initialized():
        try:
            store, rank, world = next(rendezvous("env://", timeout=PATIENCE))
            if os.environ.get("LOCAL_WORLD_SIZE") == size:
                # torchrun keeps its store when it starts ranks again, and addresses of the lost ones are still in it.
                # Between machines its count of restarts may differ, so there it is no name for an attempt.
                store = PrefixStore(f"attempt-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
            dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=PATIENCE)
        except (RuntimeError, ValueError) as error:
            rank = os.environ["RANK"]
            raise UserError(f"rank {rank} of {size} did not find the others ({first_line(error)})") from None
        atexit.register(_leave)
    return Together(int(os.environ.get("LOCAL_RANK", "0")))


def _leave() -> None:
    """Gloo's threads would end the process with an abort. NCCL's group is left alone: it would wait for lost ranks."""
    import torch.distributed as dist

    if dist.is_initialized() and len(dist.distributed_c10d._world.pg_map) == 1:
        dist.destroy_process_group()
