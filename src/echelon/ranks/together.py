"""Several processes that train one run, by torch.distributed: NCCL between GPUs, gloo between CPUs and hosts."""

import atexit
import os
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from echelon.errors import SaidElsewhere, UserError, first_line
from echelon.ranks.ranks import Ranks, rows

T = TypeVar("T")
FAILED = 1 << 30
"""Answer of a rank in `agree` that raised an error: larger than any other."""
PATIENCE = timedelta(minutes=30)
"""How long a rank waits for another, which may be compiling kernels or reading a checkpoint."""
SILENCE = timedelta(seconds=3)
"""How long a rank that raised an error waits for rank 0 to report it."""
MEETING = timedelta(minutes=5)
"""How long ranks wait for each other at the start; torchrun starts them together."""
_groups: dict[str, dist.ProcessGroup] = {}
"""Process group per kind of device; gloo, the default group, for the others."""


def _reduced(x: Tensor, largest: bool) -> Tensor:
    """The sum of all ranks' tensors, or the largest, element by element."""
    found = x.clone(memory_format=torch.contiguous_format)
    _reduce(found, dist.ReduceOp.MAX if largest else dist.ReduceOp.SUM)
    return found


_reduced_compiled = torch.library.custom_op("echelon::reduced_over_ranks", _reduced, mutates_args=())
"""The same as a custom operator, which torch's compiler does not look into. Only compiled functions use it, because its
first call takes seconds."""
_reduced_compiled.register_fake(lambda x, largest: torch.empty_like(x, memory_format=torch.contiguous_format))


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
        return (_reduced_compiled if torch.compiler.is_compiling() else _reduced)(x, False)

    def mean(self, x: Tensor) -> Tensor:
        return self.sum(x) / self.size

    def max(self, x: Tensor) -> Tensor:
        return (_reduced_compiled if torch.compiler.is_compiling() else _reduced)(x, True)

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
        all_ranks = x.new_zeros(self.size, 2, *mean.shape, dtype=torch.float64)
        all_ranks[self.rank] = torch.stack((mean, var))
        means, variances = self.sum(all_ranks).unbind(1)  # exact: the other ranks add zeros
        mean = means.mean(0)
        spread = count * (variances + (means - mean).square()).sum(0)
        return (spread / max(1, total - 1)).to(x.dtype), mean.to(x.dtype)

    def std_mean(self, x: Tensor, dim: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        var, mean = self.var_mean(x.double(), dim)
        return var.sqrt().to(x.dtype), mean.to(x.dtype)

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
        found: list[T] = []

        def append() -> int:
            found.append(act())
            return 0

        self.agree(append)
        return found[0]

    def agree(self, act: Callable[[], int]) -> int:
        try:
            answer, problem = act(), None
        except UserError as error:
            answer, problem = FAILED, error
        largest = torch.tensor(answer)
        _reduce(largest, dist.ReduceOp.MAX)
        if int(largest) == FAILED:
            sentences = enumerate(self.gather(None if problem is None else str(problem)))
            rank, text = next((rank, text) for rank, text in sentences if text is not None)
            raise self.said_once(problem if problem and rank == 0 else UserError(f"rank {rank}: {text}"))
        return int(largest)

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


def join_others() -> Together:
    """Join the ranks that torchrun started. Without LOCAL_RANK, each process has a machine of its own."""
    numbers = {name: os.environ.get(name, "") for name in ("WORLD_SIZE", "RANK")}
    numbers["LOCAL_RANK"] = os.environ.get("LOCAL_RANK", "0")
    size, *places = (int(value) if value.isdecimal() else -1 for value in numbers.values())
    if not all(0 <= place < size for place in places) or not {"MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys():
        given = ", ".join(f"{name}={value}" for name, value in numbers.items())
        raise UserError(f"{given}, MASTER_ADDR and MASTER_PORT are not as torchrun sets them; start it by torchrun")
    if not dist.is_initialized():
        try:
            store, rank, _ = next(rendezvous("env://", timeout=MEETING))
            store = PrefixStore(agreed_name(store, rank, size), store)
            store.set_timeout(PATIENCE)
            dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=PATIENCE)
        except (RuntimeError, ValueError) as error:
            raise UserError(f"rank {places[0]} of {size} did not find the others ({first_line(error)})") from None
        atexit.register(_leave)
    return Together(places[1])


def agreed_name(store: Store, rank: int, size: int) -> str:
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
    if dist.is_initialized() and len(dist.distributed_c10d._world.pg_map) == 1:
        dist.destroy_process_group()
