"""Several processes that train one run, by torch.distributed: NCCL between GPUs, gloo between CPUs and hosts."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from echelon.errors import UserError, first_line
from echelon.ranks.ranks import Ranks, rows

T = TypeVar("T")
FAILED = 1 << 30
"""What a rank answers in `agree` if it met a mistake: larger than any answer."""


class SaidByRank0(UserError):
    """A mistake that rank 0 tells the user about, so that this rank ends without a word."""


class RanksLost(UserError):
    """Another rank has ended, so this one cannot go on."""


@torch.library.custom_op("echelon::sum_over_ranks", mutates_args=())
def _sum(x: Tensor) -> Tensor:
    """An operation of its own, which torch's compiler takes as it is."""
    total = x.clone(memory_format=torch.contiguous_format)
    _exchange(lambda: dist.all_reduce(total))
    return total


@torch.library.custom_op("echelon::max_over_ranks", mutates_args=())
def _max(x: Tensor) -> Tensor:
    largest = x.clone(memory_format=torch.contiguous_format)
    _exchange(lambda: dist.all_reduce(largest, dist.ReduceOp.MAX))
    return largest


@_sum.register_fake
@_max.register_fake
def _same_shape(x: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _exchange(act: Callable[[], object]) -> None:
    """Turn the many errors of a lost connection into one."""
    try:
        act()
    except (RuntimeError, ValueError) as error:
        raise RanksLost(f"rank {dist.get_rank()} ends, because another one has ({first_line(error)})") from None


class Together(Ranks):
    """One of several processes that `torch.distributed` has joined into its default group."""

    capture_mode = "thread_local"
    """NCCL's watchdog asks CUDA for events from another thread, which would spoil a recording in global mode."""

    def __init__(self, local_rank: int = 0) -> None:
        """`local_rank` is this process's GPU, counted on its machine."""
        self.size, self.rank, self._local_rank = dist.get_world_size(), dist.get_rank(), local_rank

    def device(self, kind: str) -> torch.device:
        return torch.device(kind, self._local_rank) if kind == "cuda" else torch.device(kind)

    def seed(self, seed: int) -> int:
        # Hashed: environments often seed their copies with seed + 1, seed + 2, and so on, which another rank's must not be.
        return int(np.random.SeedSequence((seed, self.rank)).generate_state(1)[0])

    def common_generator(self, own: torch.Generator, seed: int) -> torch.Generator:
        return torch.Generator(own.device).manual_seed(seed)

    def sum(self, x: Tensor) -> Tensor:
        return _sum(x)

    def mean(self, x: Tensor) -> Tensor:
        return _sum(x) / self.size

    def max(self, x: Tensor) -> Tensor:
        return _max(x)

    def mean_(self, buffer: Tensor) -> None:
        _exchange(lambda: dist.all_reduce(buffer))
        buffer.div_(self.size)

    def mean_with(self, buffer: Tensor, rider: Tensor) -> Tensor:
        tail = buffer[-rider.numel() :].copy_(rider.flatten())
        self.mean_(buffer)
        return tail.clone().view_as(rider)

    def var_mean(self, x: Tensor, dim: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Chan's formula on the moments of every rank's numbers, in float64: sums of squares would cancel."""
        count, total = rows(x, dim), rows(x, dim) * self.size
        var, mean = torch.var_mean(x.double(), dim, correction=0, keepdim=True)
        moments = self._all(torch.stack((mean, var)))  # [R, 2, ...]
        means, variances = moments[:, 0], moments[:, 1]
        mean = means.mean(0)
        spread = count * (variances + (means - mean).square()).sum(0)
        return (spread / max(1, total - 1)).to(x.dtype), mean.to(x.dtype)

    def std_mean(self, x: Tensor, dim: Sequence[int]) -> tuple[Tensor, Tensor]:
        var, mean = self.var_mean(x.double(), dim)
        return var.sqrt().to(x.dtype), mean.to(x.dtype)

    def _all(self, x: Tensor) -> Tensor:
        """Every rank's tensor, one after another: a sum in which all others' places are zero, so it is exact."""
        places = x.new_zeros(self.size, *x.shape)
        places[self.rank] = x
        return _sum(places)

    def copy_first_(self, tensors: Sequence[Tensor]) -> None:
        for x in tensors:
            whole = x.contiguous()
            _exchange(lambda whole=whole: dist.broadcast(whole, 0))
            x.copy_(whole)

    def broadcast(self, x: T) -> T:
        found = [x]
        _exchange(lambda: dist.broadcast_object_list(found, 0, device=torch.device("cpu")))
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
        _exchange(lambda: dist.all_reduce(largest, dist.ReduceOp.MAX))
        if int(largest) == FAILED:
            self._raise(problem)
        return int(largest)

    def _raise(self, problem: UserError | None) -> None:
        """Raise what went wrong on any rank: rank 0 the sentence, the others something that nobody is told of."""
        sentences = self.gather(None if problem is None else str(problem))
        found = [(rank, text) for rank, text in enumerate(sentences) if text is not None]
        if not found:
            return
        if problem is not None and self.rank == 0:
            raise problem
        rank, text = found[0]
        raise UserError(f"rank {rank}: {text}") if self.rank == 0 else SaidByRank0(text)
