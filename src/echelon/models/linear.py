"""Layers of G stacked networks. With G = 1 every product is an ordinary one."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn


class Linear(nn.Module):
    """`x·Wᵀ + b`, a weight `[G, W, V]` and bias `[G, W]` for each network. Starts as PyTorch's layer does."""

    def __init__(self, inputs: int, outputs: int, *, bias: bool = True) -> None:
        super().__init__()
        layer = nn.Linear(inputs, outputs, bias=bias)
        self.in_features, self.out_features = inputs, outputs
        self.weight = nn.Parameter(layer.weight.detach()[None])
        self.bias: Tensor
        self.register_parameter("bias", nn.Parameter(layer.bias.detach()[None]) if bias else None)

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


@torch.no_grad()
def stack(first: nn.Module, others: Sequence[nn.Module]) -> None:
    """Stack modules of the same shapes: `first` gets the concatenated tensors of all, `[G, ...]`."""
    for name, parameter in first.named_parameters():
        parameter.data = torch.cat((parameter, *(other.get_parameter(name) for other in others)))
    for name, buffer in list(first.named_buffers()):
        path, _, last = name.rpartition(".")
        stacked = torch.cat((buffer, *(other.get_buffer(name) for other in others)))
        setattr(first.get_submodule(path), last, stacked)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Rows `[L, G·n, V]`, those of a network side by side, to `[L, G·n, W]`."""
    networks = weight.shape[0]
    if networks == 1:
        # Not indexed: the gradient of an element would be a tensor of zeros and a copy.
        return nn.functional.linear(x, weight.squeeze(0), None if bias is None else bias.squeeze(0))
    rows = by_network(x, networks)
    result = rows @ weight.mT if bias is None else torch.baddbmm(bias.unsqueeze(1), rows, weight.mT)
    return by_step(result, x.shape[0])


def by_network(x: Tensor, networks: int) -> Tensor:
    """`[L, G·n, ...]` to `[G, L·n, ...]`."""
    return x.unflatten(1, (networks, -1)).transpose(0, 1).flatten(1, 2)


def by_step(x: Tensor, steps: int) -> Tensor:
    """`[G, L·n, ...]` back to `[L, G·n, ...]`."""
    return x.unflatten(1, (steps, -1)).transpose(0, 1).flatten(1, 2)


def column_major(weight: Tensor) -> Tensor:
    """The same matrices, on CUDA stored by columns.

    In `gradient · weight` the sum runs over the weight's rows. TF32 tensor cores want both factors contiguous along the
    sum; a copy of the weight, which is small, gives them that.
    """
    return weight.mT.contiguous().mT if weight.is_cuda else weight


class _Product(torch.autograd.Function):
    """`x · weightᵀ` of `[R, V]` and `[W, V]`, or of G such pairs, with a column-major weight in the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return x @ weight.mT

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        (grad,) = grads
        return grad @ column_major(weight), grad.mT @ x


def product(x: Tensor, weight: Tensor) -> Tensor:
    """`linear` without a bias, for what is compiled for CUDA."""
    networks, steps = weight.shape[0], x.shape[0]
    result: Any
    if networks == 1:
        result = _Product.apply(x.flatten(0, 1), weight.squeeze(0))
        return result.unflatten(0, (steps, -1))
    result = _Product.apply(by_network(x, networks), weight)
    return by_step(result, steps)


class _Lookup(torch.autograd.Function):
    """`table[ids]`. Plain indexing would scatter B gradient rows into a handful of table rows one after another; on
    CUDA that serialised scatter made whole updates several times slower. One-hot times gradient is the same sum."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, ids: Tensor) -> Tensor:
        ctx.save_for_backward(ids)
        ctx.rows = table.shape[0]
        return table.index_select(0, ids)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (grad,) = grads
        (ids,) = ctx.saved_tensors
        one_hot = (torch.arange(ctx.rows, device=ids.device)[:, None] == ids).to(grad.dtype)
        return one_hot @ grad, None


def lookup(table: Tensor, ids: Tensor) -> Tensor:
    """`[M, K]` table and `[B]` ids to `[B, K]`; a table of one row broadcasts as `[1, K]`.

    Always a copy: what was looked up must not change when an optimizer writes into the table.
    """
    if table.shape[0] == 1:
        return table.clone()
    rows: Any = _Lookup.apply(table, ids)
    return rows
