"""What the processes of a run have in common. Of one process alone, everything is its own sum.

Imports no torch: flags are read before it is.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Literal, TypeVar

from echelon.errors import UserError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

T = TypeVar("T")


class Ranks:
    """A process that trains alone: nothing is exchanged, and nothing costs anything.

    `echelon.ranks.together.Together` is the same of several processes. All ranks have equally many environments of each
    policy, so the mean of their means is the mean of all; and all call the same methods in the same order.
    """

    size, rank = 1, 0
    capture_mode: Literal["global", "thread_local"] = "global"
    """How CUDA graphs are recorded (`torch.cuda.graph`)."""

    @property
    def first(self) -> bool:
        """Whether this is the rank that writes and speaks for all."""
        return self.rank == 0

    def device(self, kind: str) -> "torch.device":
        """The device of this rank, of one kind: `cpu` or `cuda`."""
        import torch

        return torch.device(kind)

    def connect(self, device: "torch.device") -> None:
        """Make ready to exchange tensors that are on the device."""

    def leave(self) -> None:
        """Take leave of the others, after everything went well."""

    def seed(self, seed: int) -> int:
        """What this rank's environments, noise and shuffling are seeded with in a run of that seed."""
        return seed

    def common_generator(self, own: T, seed: int, device: "torch.device") -> "T | torch.Generator":
        """For what all ranks must draw alike; `own` is what this rank draws everything else from."""
        return own

    # Of tensors, without the host looking. Sum, mean and max may be used in compiled functions, all in CUDA graphs.

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
        """The same of a flat buffer, and the mean of `rider`: the buffer ends with room for it, so that both take one
        exchange."""
        return rider

    def var_mean(self, x: "Tensor", dim: tuple[int, ...]) -> "tuple[Tensor, Tensor]":
        """Unbiased variance and mean of all ranks' numbers over some dimensions, which are kept as 1."""
        import torch

        return torch.var_mean(x, dim, correction=min(1, rows(x, dim) - 1), keepdim=True)  # one row has no unbiased one

    def std_mean(self, x: "Tensor", dim: tuple[int, ...]) -> "tuple[Tensor, Tensor]":
        """Unbiased standard deviation and mean, likewise."""
        import torch

        return torch.std_mean(x, dim, correction=min(1, rows(x, dim) - 1), keepdim=True)

    def copy_first_(self, tensors: "Sequence[Tensor]") -> None:
        """Overwrite tensors with those of rank 0, in place."""

    # Of the host, which waits for all ranks.

    def broadcast(self, x: T) -> T:
        """Rank 0's object, on every rank."""
        return x

    def gather(self, x: T) -> list[T]:
        """All ranks' objects, on every rank."""
        return [x]

    def attempt(self, act: Callable[[], T]) -> T:
        """Do something without exchanging anything. If it is a mistake on any rank, all end, and rank 0 says which."""
        return act()

    def agree(self, act: Callable[[], int]) -> int:
        """The same of a number, often and cheaply: the largest of all ranks' answers."""
        return act()

    def explained(self, error: UserError) -> UserError:
        """A mistake that this rank has met, whatever the others do meanwhile."""
        return error

    def said_once(self, error: UserError) -> UserError:
        """A mistake that all ranks have found, to be raised by all and told by one."""
        return error


ALONE = Ranks()


def rows(x: "Tensor", dim: tuple[int, ...]) -> int:
    """Numbers that a mean over these dimensions runs over."""
    return prod(x.shape[d] for d in dim)
