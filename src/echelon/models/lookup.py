"""Rows of a small parameter table by a long vector of ids, with a backward pass that is a matrix product."""

from typing import Any

import torch
from torch import Tensor


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
