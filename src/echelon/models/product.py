"""A layer's product whose gradient takes the weight the way that a GPU likes it."""

from typing import Any

import torch
from torch import Tensor


def turned(weight: Tensor) -> Tensor:
    """The same matrix, on CUDA laid out by columns.

    In `gradient · weight` the sum runs over the weight's rows. Tensor cores want both factors of TF32 contiguous along
    the sum; a copy of the weight, which is small, gives them that.
    """
    return weight.t().contiguous().t() if weight.is_cuda else weight


class _Product(torch.autograd.Function):
    """`x · weightᵀ` of `[L, B, V]` and `[W, V]`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return x @ weight.t()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        (grad,) = grads
        return grad @ turned(weight), grad.flatten(0, 1).t() @ x.flatten(0, 1)


def product(x: Tensor, weight: Tensor) -> Tensor:
    """`linear` without a bias, for what is compiled for CUDA."""
    result: Any = _Product.apply(x, weight)
    return result
