"""Report memory that ran out in one sentence."""

from collections.abc import Iterator
from contextlib import contextmanager

from echelon.config import TrainConfig
from echelon.errors import UserError

OUT_OF_MEMORY = ("out of memory", "not enough memory", "can't allocate memory", "bad_alloc", "cannot allocate memory")


@contextmanager
def explain_full_memory(config: TrainConfig) -> Iterator[None]:
    """Turn an out-of-memory error into a `UserError`."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and not any(words in str(error).lower() for words in OUT_OF_MEMORY):
            raise
        hidden = " ".join(map(str, config.model.hidden))
        raise UserError(
            f"{config.num_envs:,} environments, a horizon of {config.update.horizon} and networks of {hidden} do not "
            f"fit into the memory of the {config.device}; try --num-envs {max(1, config.num_envs // 2)}"
        ) from None
