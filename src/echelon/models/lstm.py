"""An LSTM over time whose state is zeroed where episodes start, with a backward pass of its own.

Autograd would give every step's input a gradient of the whole sequence's size, mostly zeros, and compute the recurrent
weight's gradient in one product per step, each added to the sum. Here the gradient of the inputs is written once, and
one (batched) product over all rows gives the weight's. The bias belongs to the inputs, whose gradient is summed over
rows anyway.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from echelon.models.linear import column_major

PARTS = 5
"""Tensors a step keeps for the backward pass: its four gates and the cell."""


def unroll(projected: Tensor, state: Tensor, start: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Hidden vectors `[L, B, H]` and the state after the last step `[B, 2H]`.

    projected `[L, B, 4H]`, the inputs' share of the gates (enter, forget, candidate, leave) with all biases; state
    `[B, 2H]`, hidden and cell before the first step; start `[L, B]` bool, where the state is zeroed first; weight
    `[G, 4H, H]`, one for each of G networks, whose sequences lie side by side.

    Products are taken in the precision of `projected`, which autocast may have lowered; hidden and cell keep that of
    `state`. Gradients have no gradients of their own.
    """
    weight = weight.to(projected.dtype)
    if not torch.is_grad_enabled():
        outputs, state, _ = _forward(projected, state, start, weight, keep=False)
        return outputs, state
    unrolled: Any = _Unroll.apply(projected, state, start, weight)
    return unrolled


class _Unroll(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, projected: Tensor, state: Tensor, start: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        outputs, last, kept = _forward(projected, state, start, weight, keep=True)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(state, start, weight, outputs, *kept)
        return outputs, last

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]  # the decorator forgets the names of arguments
        ctx: Any, *grads: Tensor | None
    ) -> tuple[Tensor, Tensor, None, Tensor]:
        state, start, weight, outputs, *kept = ctx.saved_tensors
        grad_outputs = torch.zeros_like(outputs) if grads[0] is None else grads[0]
        grad_last = torch.zeros_like(state) if grads[1] is None else grads[1]
        grad_gates, grad_state = _backward(grad_outputs, grad_last, state, start, weight, kept)
        first = state.chunk(2, dim=-1)[0]
        before = torch.cat((first.unsqueeze(0), outputs[:-1])) * _continues(start, outputs)
        grad_weight = _summed_product(grad_gates, before.to(weight.dtype), weight.shape[0])
        return grad_gates, grad_state, None, grad_weight


def _summed_product(left: Tensor, right: Tensor, networks: int) -> Tensor:
    """Σ over all rows of a network of the outer products of `[L, B, P]` and `[L, B, Q]`: `[G, P, Q]`.

    On CUDA one product per step and a sum: a single long one has too few output tiles to fill the device.
    """
    if left.is_cuda or networks > 1:
        left, right = left.unflatten(1, (networks, -1)), right.unflatten(1, (networks, -1))
        return (left.mT @ right).sum(0)
    return (left.flatten(0, 1).T @ right.flatten(0, 1))[None]


def _product(x: Tensor, weight: Tensor) -> Tensor:
    """`[B, V]` by a matrix `[G, V, W]` of each network."""
    if weight.shape[0] == 1:
        return x @ weight[0]
    return (x.unflatten(0, (weight.shape[0], -1)) @ weight).flatten(0, 1)


def _continues(start: Tensor, like: Tensor) -> Tensor:
    """1 where a row continues from the state before it, 0 where an episode starts: `[L, B, 1]`."""
    return (~start).to(like.dtype).unsqueeze(-1)


def _forward(
    projected: Tensor, state: Tensor, start: Tensor, weight: Tensor, *, keep: bool
) -> tuple[Tensor, Tensor, list[Tensor]]:
    hidden, cell = state.chunk(2, dim=-1)
    outputs: list[Tensor] = []
    kept: list[Tensor] = []
    for inputs, going_on in zip(projected.unbind(0), _continues(start, state).unbind(0), strict=True):
        recurrent = _product((hidden * going_on).to(weight.dtype), weight.mT)
        hidden, cell, gates = _cell(inputs + recurrent, cell * going_on)
        outputs.append(hidden)
        if keep:
            kept += [*gates, cell]
    return torch.stack(outputs), torch.cat((hidden, cell), dim=-1), kept


def _backward(
    grad_outputs: Tensor, grad_last: Tensor, state: Tensor, start: Tensor, weight: Tensor, kept: list[Tensor]
) -> tuple[Tensor, Tensor]:
    """Gradients of the gates before their nonlinearity `[L, B, 4H]`, and of the first state."""
    grad_hidden, grad_cell = grad_last.chunk(2, dim=-1)
    going_on = _continues(start, state).unbind(0)
    each = grad_outputs.unbind(0)
    cells = [state.chunk(2, dim=-1)[1], *kept[PARTS - 1 :: PARTS]]
    gradients: list[Tensor] = []
    weight = column_major(weight)
    for t in reversed(range(len(each))):
        gates = kept[PARTS * t : PARTS * t + 4]
        grad_gates, grad_cell = _cell_backward(
            each[t] + grad_hidden, grad_cell, gates, cells[t] * going_on[t], cells[t + 1]
        )
        grad_gates, grad_cell = grad_gates.to(weight.dtype), grad_cell * going_on[t]
        grad_hidden = _product(grad_gates, weight).to(state.dtype) * going_on[t]
        gradients.append(grad_gates)
    return torch.stack(gradients[::-1]), torch.cat((grad_hidden, grad_cell), dim=-1)


def _cell(gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
    """One step, pointwise: hidden and cell after it, and the gates' values."""
    enter, forget, candidate, leave = gates.chunk(4, dim=-1)
    enter, forget, candidate, leave = enter.sigmoid(), forget.sigmoid(), candidate.tanh(), leave.sigmoid()
    cell = forget * cell + enter * candidate
    return leave * cell.tanh(), cell, [enter, forget, candidate, leave]


def _cell_backward(
    grad_hidden: Tensor, grad_cell: Tensor, gates: list[Tensor], before: Tensor, after: Tensor
) -> tuple[Tensor, Tensor]:
    """One step back, pointwise: gradients of the gates `[B, 4H]` and of the cell `before` the step."""
    enter, forget, candidate, leave = gates
    shown = after.tanh()
    through_sigmoid, through_tanh = torch.ops.aten.sigmoid_backward, torch.ops.aten.tanh_backward
    grad_cell = grad_cell + through_tanh(grad_hidden * leave, shown)
    grad_gates = (
        through_sigmoid(grad_cell * candidate, enter),
        through_sigmoid(grad_cell * before, forget),
        through_tanh(grad_cell * enter, candidate),
        through_sigmoid(grad_hidden * shown, leave),
    )
    return torch.cat(grad_gates, dim=-1), grad_cell * forget
