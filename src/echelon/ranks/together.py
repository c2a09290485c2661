"""Several processes that train one run, by torch.distributed: NCCL between GPUs, gloo between CPUs and hosts."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from echelon.errors import SaidElsewhere, UserError, first_line
from echelon.ranks.ranks import Ranks, rows

T = TypeVar("T")
FAILED = 1 << 30
"""Answer of a rank in `agree` that raised an error: larger than any other."""
PATIENCE = timedelta(minutes=30)
"""How long a rank waits for another, which may be compiling kernels or reading a checkpoint."""
SILENCE = timedelta(seconds=3)
"""How long a rank that raised an error waits for rank 0 to report it."""
_groups: dict[str, dist.ProcessGroup] = {}
"""Process group per kind of device; gloo, the default group, for the others."""


def _sum(x: Tensor) -> Tensor:
    total = x.clone(memory_format=torch.contiguous_format)
    _reduce(total)
    return total


def _max(x: Tensor) -> Tensor:
    largest = x.clone(memory_format=torch.contiguous_format)
    _reduce(largest, dist.ReduceOp.MAX)
    return largest


def _same_shape(x: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


# The same as custom operators, which torch's compiler does not look into. Only compiled functions use them, because
# their first call takes seconds.
_compiled_sum = torch.library.custom_op("echelon::sum_over_ranks", _sum, mutates_args=())
_compiled_max = torch.library.custom_op("echelon::max_over_ranks", _max, mutates_args=())
_compiled_sum.register_fake(_same_shape)
_compiled_max.register_fake(_same_shape)


def _reduce(x: Tensor, how: dist.ReduceOp.RedOpType = dist.ReduceOp.SUM) -> None:
    _exchange(lambda: dist.all_reduce(x, how, _groups.get(x.device.type)))


def _exchange(act: Callable[[], object]) -> None:
    """Turn the many errors of a lost connection into one."""
    try:
        act()
    except (RuntimeError, ValueError) as error:
        why = "" if "by peer" in str(error) else f" ({first_line(error)})"
        lost = UserError if dist.get_rank() == 0 else SaidElsewhere
        raise lost(f"another rank has ended, so this one cannot continue{why}") from None


class Together(Ranks):
    """One of several processes that `torch.distributed` has joined into its default group, by gloo."""

    capture_mode = "thread_local"
    """NCCL's watchdog asks CUDA for events from another thread, which would spoil a recording in global mode."""

    def __init__(self, local_rank: int = 0) -> None:
        """`local_rank` counts the processes on this machine."""
        self.size, self.rank, self._local_rank = dist.get_world_size(), dist.get_rank(), local_rank

    def device(self, kind: str) -> torch.device:
        if kind != "cuda":
            return torch.device(kind)
        count = torch.cuda.device_count()
        # A launcher may show each process only its own GPU. Whether two share one is checked later.
        index = 0 if count == 1 else self._local_rank
        if index >= count:
            raise UserError(f"this is process {index + 1} of a machine with {count} GPUs; start one for each GPU")
        return torch.device("cuda", index)

    def connect(self, device: torch.device) -> None:
        if device.type == "cuda":
            torch.cuda.set_device(device)
            _groups["cuda"] = dist.new_group(backend="nccl", timeout=PATIENCE)  # pyright: ignore[reportArgumentType]

    def leave(self) -> None:
        _groups.clear()
        if dist.is_initialized():
            dist.destroy_process_group()

    def seed(self, seed: int) -> int:
        # Hashed: environments often seed their copies with seed + 1, seed + 2 and so on, which must not collide.
        return int(np.random.SeedSequence((seed, self.rank)).generate_state(1)[0])

    def common_generator(self, own: T, seed: int, device: torch.device) -> T | torch.Generator:
        return torch.Generator(device).manual_seed(seed)

    def sum(self, x: Tensor) -> Tensor:
        return _compiled_sum(x) if torch.compiler.is_compiling() else _sum(x)

    def mean(self, x: Tensor) -> Tensor:
        return self.sum(x) / self.size

    def max(self, x: Tensor) -> Tensor:
        return _compiled_max(x) if torch.compiler.is_compiling() else _max(x)

    def mean_(self, buffer: Tensor) -> None:
        _reduce(buffer)
        buffer.div_(self.size)

    def mean_with(self, buffer: Tensor, rider: Tensor) -> Tensor:
        tail = buffer[-rider.numel() :].copy_(rider.flatten())
        self.mean_(buffer)
        return tail.clone().view_as(rider)

    def var_mean(self, x: Tensor, dim: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Chan's formula on the moments of every rank's numbers, in float64: sums of squares would cancel."""
        count, total = rows(x, dim), rows(x, dim) * self.size
        var, mean = torch.var_mean(x.double(), dim, correction=0, keepdim=True)
        means, variances = self._all(torch.stack((mean, var))).unbind(1)
        mean = means.mean(0)
        spread = count * (variances + (means - mean).square()).sum(0)
        return (spread / max(1, total - 1)).to(x.dtype), mean.to(x.dtype)

    def std_mean(self, x: Tensor, dim: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        var, mean = self.var_mean(x.double(), dim)
        return var.sqrt().to(x.dtype), mean.to(x.dtype)

    def _all(self, x: Tensor) -> Tensor:
        """Every rank's tensor, `[R, ...]`: a sum with zeros in the places of other ranks, so it is exact."""
        places = x.new_zeros(self.size, *x.shape)
        places[self.rank] = x
        return self.sum(places)

    def copy_first_(self, tensors: Sequence[Tensor]) -> None:
        for x in tensors:
            whole = x.detach().contiguous()
            _exchange(lambda whole=whole: dist.broadcast(whole, 0, _groups.get(whole.device.type)))
            x.detach().copy_(whole)

    def broadcast(self, x: T) -> T:
        found = [x]
        _exchange(lambda: dist.broadcast_object_list(found, 0))
        return found[0]

    def gather(self, x: T) -> list[T]:
        found: list[T | None] = [None] * self.size
        _exchange(lambda: dist.all_gather_object(found, x))
        return found  # pyright: ignore[reportReturnType]  # each is filled in

    def attempt(self, act: Callable[[], T]) -> T:
        try:
            result, problem = [act()], None
        except UserError as error:
            result, problem = [], error
        self._raise(problem)
        return result[0]

    def agree(self, act: Callable[[], int]) -> int:
        problem = None
        try:
            answer = act()
        except UserError as error:
            answer, problem = FAILED, error
        largest = torch.tensor(answer)
        _reduce(largest, dist.ReduceOp.MAX)
        if int(largest) == FAILED:
            self._raise(problem)
        return int(largest)

    def _raise(self, problem: UserError | None) -> None:
        """Raise the error of the first rank that met one, if any did."""
        sentences = self.gather(None if problem is None else str(problem))
        found = [(rank, text) for rank, text in enumerate(sentences) if text is not None]
        if found:
            rank, text = found[0]
            told = UserError(f"rank {rank}: {text}")
            raise self.said_once(problem if problem is not None and rank == 0 else told)

    def explained(self, error: UserError) -> UserError:
        """If all ranks met the same error, only rank 0 reports it. A collective cannot find that out: some ranks may be
        in the middle of an iteration."""
        if isinstance(error, SaidElsewhere):
            return error
        store = dist.distributed_c10d._get_default_store()
        if self.first:
            with suppress(RuntimeError):  # the store may have gone with another process
                store.set("said", str(error))
            return error
        try:
            store.wait(["said"], SILENCE)
        except RuntimeError:  # includes timeouts
            return UserError(f"rank {self.rank}: {error}")
        return SaidElsewhere(str(error))

    def said_once(self, error: UserError) -> UserError:
        return error if self.first else SaidElsewhere(str(error))
