"""`spread`, and the activation of any layer, as one Triton kernel each way, which read and write every number once.

A program takes a tile of units, all of one policy's block, and goes through their evaluations: their own, and the
leader's M-1 pulls or the drawn follower's borrowed one. So it loads each unit once for all its outputs, and writes a
unit's gradient once, already summed.

The gradient of `cond` is a sum over all evaluations of a policy. Every program leaves the sum over its tile in a place
of its own, and these few are added up afterwards: no atomic additions, whose order would differ from run to run.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from echelon.models.spread import Blocks, Sharing


@dataclass(frozen=True)
class Tile:
    """What one program takes."""

    rows: int
    columns: int
    warps: int


FORWARD, BACKWARD = Tile(16, 256, 4), Tile(64, 64, 4)


def spread_in_one(projected: Tensor, cond: Tensor, sharing: Sharing, activate: bool) -> Tensor:
    """`spread`, by the kernels."""
    # A compiled graph is kept from one version of this file to the next: what its shapes depend on is an argument.
    return _spread(projected, cond, sharing.follower, list(sharing.blocks), BACKWARD.rows, activate)


def activate_in_one(x: Tensor, bias: Tensor) -> Tensor:
    """`elu(x + bias)` of rows `[L, B, W]` and a bias `[W]`: as if one policy had them all."""
    alone = Blocks(followers=0, leader_units=x.shape[1], follower_units=0, borrows=False, pulls=False)
    return _spread(x, bias[None], None, list(alone), BACKWARD.rows, True)


@triton.jit
def _elu(x):
    # exp(x) - 1 errs by 6e-8 where expm1 would by less, beside outputs of the order of 1.
    return tl.where(x > 0, x, tl.exp(x) - 1)


@triton.jit
def _tile(leader_units, follower_units, followers, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Which tile this program has: its step, number in the block, policy; the block's first unit and size; columns.

    Neighbours take neighbouring columns, then rows. The leader's tiles, which have most to do, begin each step.
    """
    column_tiles = tl.cdiv(width, COLUMNS)
    leader_tiles, follower_tiles = tl.cdiv(leader_units, ROWS), tl.cdiv(follower_units, ROWS)
    tiles = leader_tiles + followers * follower_tiles
    number = tl.program_id(0)
    columns = number % column_tiles * COLUMNS + tl.arange(0, COLUMNS)
    number //= column_tiles
    step, number = number // tiles, number % tiles
    leads = number < leader_tiles
    after = number - leader_tiles
    policy = tl.where(leads, 0, 1 + after // tl.maximum(follower_tiles, 1))
    number = tl.where(leads, number, after % tl.maximum(follower_tiles, 1))
    first = tl.where(leads, 0, leader_units + (policy - 1) * follower_units)
    size = tl.where(leads, leader_units, follower_units)
    return step.to(tl.int64), number, policy, first, size, columns


@triton.jit
def _write(outputs, x, cond, policy, row, width, columns, at, inside, ACTIVATE: tl.constexpr):
    """The evaluations of a tile `x` of units under a policy, from `row` on."""
    y = x + tl.load(cond + policy * width + columns, mask=columns < width, other=0.0).to(tl.float32)[None, :]
    if ACTIVATE:
        y = _elu(y)
    tl.store(outputs + row * width + at, y, mask=inside)


@triton.jit
def _forward(
    projected,
    cond,
    follower,
    outputs,
    evaluations,
    pulled,
    leader_units,
    follower_units,
    width,
    FOLLOWERS: tl.constexpr,
    BORROWS: tl.constexpr,
    PULLS: tl.constexpr,
    ACTIVATE: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    step, number, policy, first, size, columns = _tile(leader_units, follower_units, FOLLOWERS, width, ROWS, COLUMNS)
    units = leader_units + FOLLOWERS * follower_units
    rows = number * ROWS + tl.arange(0, ROWS)
    inside = (rows < size)[:, None] & (columns < width)[None, :]
    at = rows[:, None] * width + columns[None, :]
    x = tl.load(projected + (step * units + first) * width + at, mask=inside).to(tl.float32)
    begin = step * evaluations
    _write(outputs, x, cond, policy, begin + first, width, columns, at, inside, ACTIVATE)
    if PULLS and policy == 0:
        for k in range(FOLLOWERS):
            row = begin + pulled + k * leader_units
            _write(outputs, x, cond, k + 1, row, width, columns, at, inside, ACTIVATE)
    if BORROWS and policy == tl.load(follower):
        _write(outputs, x, cond, 0, begin + units, width, columns, at, inside, ACTIVATE)


@triton.jit
def _read_back(grads, outputs, partials, policy, row, width, columns, at, inside, slot, slots, ACTIVATE: tl.constexpr):
    """The gradient of a tile's units by their evaluations from `row` on; its sum goes to the policy's `slot`."""
    grad = tl.load(grads + row * width + at, mask=inside, other=0.0).to(tl.float32)
    if ACTIVATE:
        # ELU's slope by its value: exp(x) = y + 1 below zero.
        y = tl.load(outputs + row * width + at, mask=inside, other=0.0).to(tl.float32)
        grad = tl.where(y > 0, grad, grad * (y + 1))
    place = partials + (policy * slots + slot) * width + columns
    tl.store(place, tl.sum(grad, axis=0), mask=columns < width)
    return grad


@triton.jit
def _backward(
    grads,
    outputs,
    follower,
    unit_grads,
    partials,
    evaluations,
    pulled,
    slots,
    leader_units,
    follower_units,
    width,
    FOLLOWERS: tl.constexpr,
    BORROWS: tl.constexpr,
    PULLS: tl.constexpr,
    ACTIVATE: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    step, number, policy, first, size, columns = _tile(leader_units, follower_units, FOLLOWERS, width, ROWS, COLUMNS)
    units = leader_units + FOLLOWERS * follower_units
    rows = number * ROWS + tl.arange(0, ROWS)
    inside = (rows < size)[:, None] & (columns < width)[None, :]
    at = rows[:, None] * width + columns[None, :]
    # Under any policy, a step has sums of the leader's tiles and of one follower's.
    leader_tiles = tl.cdiv(leader_units, ROWS)
    slot = step * (leader_tiles + tl.cdiv(follower_units, ROWS)) + number + tl.where(policy == 0, 0, leader_tiles)
    begin = step * evaluations
    total = _read_back(
        grads, outputs, partials, policy, begin + first, width, columns, at, inside, slot, slots, ACTIVATE
    )
    if PULLS and policy == 0:
        for k in range(FOLLOWERS):
            row = begin + pulled + k * leader_units
            total += _read_back(grads, outputs, partials, k + 1, row, width, columns, at, inside, slot, slots, ACTIVATE)
    if BORROWS and policy == tl.load(follower):
        row = begin + units
        total += _read_back(grads, outputs, partials, 0, row, width, columns, at, inside, slot, slots, ACTIVATE)
    tl.store(unit_grads + (step * units + first) * width + at, total, mask=inside)


def _options(blocks: Blocks, activate: bool, tile: Tile, steps: int, width: int) -> tuple[tuple[int], dict[str, Any]]:
    """The grid, and the arguments that both kernels have."""
    own, borrowed, _ = blocks.counts
    columns = min(tile.columns, triton.next_power_of_2(width))
    tiles = triton.cdiv(blocks.leader_units, tile.rows)
    tiles += blocks.followers * triton.cdiv(blocks.follower_units, tile.rows)
    arguments = {
        "evaluations": sum(blocks.counts),
        "pulled": own + borrowed,
        "leader_units": blocks.leader_units,
        "follower_units": blocks.follower_units,
        "width": width,
        "FOLLOWERS": blocks.followers,
        "BORROWS": bool(blocks.borrows),
        "PULLS": bool(blocks.pulls),
        "ACTIVATE": activate,
        "ROWS": tile.rows,
        "COLUMNS": columns,
        "num_warps": tile.warps,
    }
    return (steps * tiles * triton.cdiv(width, columns),), arguments


@torch.library.custom_op("echelon::spread", mutates_args=())
def _spread(
    projected: Tensor, cond: Tensor, follower: Tensor | None, blocks: Sequence[int], rows: int, activate: bool
) -> Tensor:
    """`rows` is for the backward pass; the follower is needed if it is borrowed from."""
    outputs = _empty_outputs(projected, cond, follower, blocks, rows, activate)
    grid, options = _options(Blocks._make(blocks), activate, FORWARD, projected.shape[0], projected.shape[2])
    drawn = outputs if follower is None else follower  # of nobody it is not read
    _forward[grid](projected.contiguous(), cond.contiguous(), drawn, outputs, **options)
    return outputs


@_spread.register_fake
def _empty_outputs(
    projected: Tensor, cond: Tensor, follower: Tensor | None, blocks: Sequence[int], rows: int, activate: bool
) -> Tensor:
    return projected.new_empty(projected.shape[0], sum(Blocks._make(blocks).counts), projected.shape[2])


@torch.library.custom_op("echelon::spread_backward", mutates_args=())
def _spread_backward(
    grad: Tensor, outputs: Tensor | None, follower: Tensor | None, blocks: Sequence[int], rows: int
) -> tuple[Tensor, Tensor]:
    """The units' gradient, and partial sums `[M, slots, W]` of that of `cond`, each over `rows` units.

    Without outputs, of no activation.
    """
    cut, grad = Blocks._make(blocks), grad.contiguous()
    unit_grads, partials = _empty_gradients(grad, outputs, follower, blocks, rows)
    if cut.followers and not (cut.borrows and cut.pulls):
        partials.zero_()  # some slots have nothing to add
    grid, options = _options(cut, outputs is not None, replace(BACKWARD, rows=rows), grad.shape[0], grad.shape[2])
    read = grad if outputs is None else outputs.contiguous()
    drawn = grad if follower is None else follower
    _backward[grid](grad, read, drawn, unit_grads, partials, slots=partials.shape[1], **options)
    return unit_grads, partials


@_spread_backward.register_fake
def _empty_gradients(
    grad: Tensor, outputs: Tensor | None, follower: Tensor | None, blocks: Sequence[int], rows: int
) -> tuple[Tensor, Tensor]:
    cut, (steps, _, width) = Blocks._make(blocks), grad.shape
    tiles = sum(triton.cdiv(units, rows) for units in (cut.leader_units, cut.follower_units))
    partials = grad.new_empty((cut.followers + 1, steps * tiles, width), dtype=torch.float32)
    return grad.new_empty(steps, cut.counts[0], width), partials


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, cond, follower, ctx.blocks, ctx.rows, activate = inputs
    ctx.kind = cond.dtype
    ctx.save_for_backward(follower, *([output] if activate else []))


def _gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    follower, *outputs = ctx.saved_tensors
    unit_grads, partials = _spread_backward(grad, outputs[0] if outputs else None, follower, ctx.blocks, ctx.rows)
    return unit_grads, partials.sum(1).to(ctx.kind), None, None, None, None


_spread.register_autograd(_gradients, setup_context=_keep)
