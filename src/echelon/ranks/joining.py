"""From the environment variables that torchrun sets to ranks that have found each other.

Imports no torch: a process that is started alone has nothing to join.
"""

import os

from echelon.errors import UserError, first_line
from echelon.ranks.ranks import ALONE, Ranks

NEEDED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


def join() -> Ranks:
    """All ranks of this run. Processes that torchrun starts join each other, any other is alone."""
    size = os.environ.get("WORLD_SIZE", "1")
    if size == "1":
        return ALONE
    missing = [name for name in NEEDED if name not in os.environ]
    numbers = [os.environ.get(name, "") for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")]
    if missing or not all(number.isdigit() for number in numbers):
        what = f"{', '.join(missing)} is missing" if missing else f"they are {', '.join(numbers)}"
        raise UserError(
            f"WORLD_SIZE is {size}, so this is one of several processes, but RANK, WORLD_SIZE and LOCAL_RANK must be "
            f"numbers and {what}; start it by torchrun"
        )

    import torch.distributed as dist

    from echelon.ranks.together import PATIENCE, Together

    if not dist.is_initialized():
        try:
            dist.init_process_group("gloo", timeout=PATIENCE)
        except (RuntimeError, ValueError) as error:
            raise UserError(f"rank {numbers[0]} of {size} did not find the others ({first_line(error)})") from None
    return Together(int(numbers[2]))
