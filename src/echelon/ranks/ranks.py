"""Collectives between the processes of a run. With one process every operation is the identity.

Imports no torch, so that flags are read without it.
"""

import os
from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Literal, TypeVar

from echelon.errors import UserError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

T = TypeVar("T")


class Ranks:
    """A process that trains alone: nothing is exchanged, at no cost.

    `echelon.ranks.together.Together` is the same for several processes. All ranks have equal numbers of environments
    per policy, so the mean of their means is the mean of all; and all call the same methods in the same order.
    """

    size, rank = 1, 0
    capture_mode: Literal["global", "thread_local"] = "global"
    """How CUDA graphs are recorded (`torch.cuda.graph`)."""

    @property
    def first(self) -> bool:
        """Whether this is rank 0, which writes and prints."""
        return self.rank == 0

    def device(self, kind: str) -> "torch.device":
        """The device of this rank, of one kind: `cpu` or `cuda`."""
        import torch

        return torch.device(kind)

    def connect(self, device: "torch.device") -> None:
        """Prepare to exchange tensors on the device."""

    def leave(self) -> None:
        """Destroy the process group after a clean finish."""

    def seed(self, seed: int) -> int:
        """The seed of this rank's environments, noise and shuffling, derived from the run's."""
        return seed

    def common_generator(self, own: T, seed: int, device: "torch.device") -> "T | torch.Generator":
        """The generator for numbers that must be equal on all ranks; `own` is this rank's, for all others."""
        return own

    # Tensor collectives; they never synchronise with the host. All can be captured, sum, mean and max also compiled.

    def sum(self, x: "Tensor") -> "Tensor":
        """The sum of all ranks' tensors."""
        return x

    def mean(self, x: "Tensor") -> "Tensor":
        """The mean of all ranks' tensors."""
        return x

    def max(self, x: "Tensor") -> "Tensor":
        """The largest of all ranks' numbers, element by element."""
        return x

    def mean_(self, buffer: "Tensor") -> None:
        """Replace a buffer by the mean of all ranks', in place."""

    def mean_with(self, buffer: "Tensor", rider: "Tensor") -> "Tensor":
        """`mean_` of a flat buffer, and the mean of `rider`, in one exchange: the buffer ends with room for it."""
        return rider

    def var_mean(self, x: "Tensor", dim: tuple[int, ...]) -> "tuple[Tensor, Tensor]":
        """Unbiased variance and mean of all ranks' numbers over some dimensions, which are kept as 1."""
        import torch

        return torch.var_mean(x, dim, correction=min(1, rows(x, dim) - 1), keepdim=True)  # one row: biased

    def std_mean(self, x: "Tensor", dim: tuple[int, ...]) -> "tuple[Tensor, Tensor]":
        """Unbiased standard deviation and mean, likewise."""
        import torch

        return torch.std_mean(x, dim, correction=min(1, rows(x, dim) - 1), keepdim=True)

    def copy_first_(self, tensors: "Sequence[Tensor]") -> None:
        """Overwrite tensors with those of rank 0, in place."""

    # Host collectives; they wait for all ranks.

    def broadcast(self, x: T) -> T:
        """Rank 0's object, on every rank."""
        return x

    def gather(self, x: T) -> list[T]:
        """All ranks' objects, on every rank."""
        return [x]

    def attempt(self, act: Callable[[], T]) -> T:
        """Call `act`, which exchanges nothing. A `UserError` on any rank is raised on all, and reported by rank 0."""
        return act()

    def agree(self, act: Callable[[], int]) -> int:
        """`attempt`, cheap enough for every iteration: the largest of the numbers that the ranks' `act` returned."""
        return act()

    def explained(self, error: UserError) -> UserError:
        """The error to raise for one that this rank met, without waiting for the others to agree."""
        return error

    def said_once(self, error: UserError) -> UserError:
        """The error to raise for one that all ranks met: only one rank prints it."""
        return error


ALONE = Ranks()


def join() -> Ranks:
    """Join the processes that torchrun started, by its environment variables; without them a process is alone."""
    if os.environ.get("WORLD_SIZE", "1") == "1":
        return ALONE
    from echelon.ranks.together import join_others

    return join_others()


def rows(x: "Tensor", dim: tuple[int, ...]) -> int:
    """How many numbers a mean over these dimensions averages."""
    return prod(x.shape[d] for d in dim)
