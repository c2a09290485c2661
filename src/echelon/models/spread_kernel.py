"""`spread`, and the activation of any layer, as one Triton kernel each way, reading and writing every number once.

A program takes a tile of units, all of one policy, and goes through their evaluations: their own, and those of every
learner that borrows them. So it loads each unit once for all its outputs, and writes a unit's gradient once, already
summed. Two small tables, made once per plan, list these evaluations.

The gradient of `cond` is a sum over all evaluations of a policy. Every program writes the sum over its tile to a slot
of its own, and the slots are added up afterwards: atomic additions would have another order in every run.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from echelon.models.sharing import DRAWN, Blocks, Sharing

FORWARD, BACKWARD = (16, 256), (64, 64)
"""Rows and columns of the tile that a program takes."""
WARPS = 4


def spread_in_one(projected: Tensor, cond: Tensor, sharing: Sharing, activate: bool) -> Tensor:
    """`spread`, by the kernels."""
    # Compiled graphs are cached across versions of this file: what shapes depend on must be an argument.
    return _spread(projected, cond, sharing.drawn, sharing.blocks.numbers, BACKWARD[0], activate)


def activate_in_one(x: Tensor, bias: Tensor) -> Tensor:
    """`elu(x + bias)` of rows `[L, G·n, W]` and a bias `[G, W]`: as if each network had one policy."""
    networks = bias.shape[0]
    alone = [networks, 1, x.shape[1] // networks]
    return _spread(x, bias, None, alone, BACKWARD[0], True)


class Tables(NamedTuple):
    """Integer tables on the device: what each program reads and writes."""

    tiles: Tensor
    """`[tiles, 5]`: first unit, units, number of the tile within its policy's block, and the range of its readings."""
    readings: Tensor
    """`[readings, 6]`: learner, its first evaluation, its first slot, the policy that must be drawn or -1, network, and
    how many units of the policy are read."""
    slots: int
    """Partial sums of each policy in a step: the most that any has."""
    complete: bool
    """Whether every slot of every policy is written, whichever follower is drawn."""


def _slots(blocks: Blocks, rows: int) -> tuple[list[int], list[int]]:
    """Tiles of `rows` units of each policy's evaluations, and how many precede those of each pair."""
    slots, before = [triton.cdiv(units, rows) for units in blocks.units], []
    for (learner, _), size in zip(blocks.pairs, blocks.sizes, strict=True):
        before.append(slots[learner])
        slots[learner] += triton.cdiv(size, rows)
    return slots, before


@lru_cache(maxsize=256)
def _tables(numbers: tuple[int, ...], rows: int, device: torch.device) -> Tables:
    """Build the tables for tiles of `rows` units. The leaders' tiles, which have most work, come first."""
    blocks = Blocks.from_numbers(numbers)
    count = [triton.cdiv(units, rows) for units in blocks.units]
    slots, first_slot = _slots(blocks, rows)
    tiles: list[tuple[int, ...]] = []
    readings: list[tuple[int, ...]] = []
    for policy in range(blocks.policies):
        for network in range(blocks.networks):
            base, begin = network * blocks.policies, len(readings)
            first = network * blocks.evaluations
            readings.append((base + policy, first + blocks.offsets[policy], 0, -1, network, blocks.units[policy]))
            lent = zip(blocks.pairs, blocks.starts, first_slot, blocks.sizes, strict=True)
            for (learner, source), start, slot, size in lent:
                if source == policy or (source == DRAWN and policy > 0):
                    needed = base + policy if source == DRAWN else -1
                    readings.append((base + learner, first + start, slot, needed, network, size))
            unit = network * blocks.own + blocks.offsets[policy]
            for number in range(count[policy]):
                size = min(rows, blocks.units[policy] - number * rows)
                tiles.append((unit + number * rows, size, number, begin, len(readings)))
    return Tables(
        torch.tensor(tiles, dtype=torch.int32, device=device),
        torch.tensor(readings, dtype=torch.int32, device=device),
        max(slots),
        len(set(slots)) == 1,
    )


@triton.jit
def _elu(x):
    # exp(x) - 1 is off by up to 6e-8, more than expm1, which is negligible beside outputs of about 1.
    return tl.where(x > 0, x, tl.exp(x) - 1)


@triton.jit
def _tile(tiles, tile_count, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The tile of this program: its step, place in the table, columns, number, offsets, and which are inside it.

    Neighbours take neighbouring columns, then rows.
    """
    column_tiles = tl.cdiv(width, COLUMNS)
    number = tl.program_id(0)
    columns = number % column_tiles * COLUMNS + tl.arange(0, COLUMNS)
    number //= column_tiles
    tile = tiles + number % tile_count * 5
    rows = tl.arange(0, ROWS)
    inside = (rows < tl.load(tile + 1))[:, None] & (columns < width)[None, :]
    at = rows[:, None] * width + columns[None, :]
    return (number // tile_count).to(tl.int64), tile, columns, at, inside


@triton.jit
def _reading(readings, k, drawn, below, DRAWS: tl.constexpr):
    """Learner, first evaluation, first slot, units from here on, and whether this reading applies in this iteration."""
    at = readings + k * 6
    left = tl.load(at + 5) - below
    active = left > 0
    if DRAWS:
        needed = tl.load(at + 3)
        active = active & ((needed < 0) | (needed == tl.load(drawn + tl.load(at + 4))))
    return tl.load(at), tl.load(at + 1), tl.load(at + 2), left, active


@triton.jit
def _forward(
    projected,
    cond,
    drawn,
    tiles,
    readings,
    outputs,
    tile_count,
    units,
    evaluations,
    width,
    DRAWS: tl.constexpr,
    ACTIVATE: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    step, tile, columns, at, inside = _tile(tiles, tile_count, width, ROWS, COLUMNS)
    x = tl.load(projected + (step * units + tl.load(tile)) * width + at, mask=inside).to(tl.float32)
    below = tl.load(tile + 2) * ROWS
    for k in range(tl.load(tile + 3), tl.load(tile + 4)):
        learner, first, _slot, left, active = _reading(readings, k, drawn, below, DRAWS)
        read = inside & active & (tl.arange(0, ROWS) < left)[:, None]
        y = x + tl.load(cond + learner * width + columns, mask=columns < width, other=0.0).to(tl.float32)[None, :]
        if ACTIVATE:
            y = _elu(y)
        tl.store(outputs + (step * evaluations + first + below) * width + at, y, mask=read)


@triton.jit
def _backward(
    grads,
    activated,
    drawn,
    tiles,
    readings,
    unit_grads,
    partials,
    slots,
    all_slots,
    tile_count,
    units,
    evaluations,
    width,
    DRAWS: tl.constexpr,
    ACTIVATE: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    step, tile, columns, at, inside = _tile(tiles, tile_count, width, ROWS, COLUMNS)
    number = tl.load(tile + 2)
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for k in range(tl.load(tile + 3), tl.load(tile + 4)):
        learner, first, slot, left, active = _reading(readings, k, drawn, number * ROWS, DRAWS)
        read = inside & active & (tl.arange(0, ROWS) < left)[:, None]
        place = (step * evaluations + first + number * ROWS) * width + at
        grad = tl.load(grads + place, mask=read, other=0.0).to(tl.float32)
        if ACTIVATE:
            # ELU's slope by its value: exp(x) = y + 1 below zero.
            y = tl.load(activated + place, mask=read, other=0.0).to(tl.float32)
            grad = tl.where(y > 0, grad, grad * (y + 1))
        row = learner.to(tl.int64) * all_slots + step * slots + slot + number
        tl.store(partials + row * width + columns, tl.sum(grad, axis=0), mask=(columns < width) & active)
        total += grad
    tl.store(unit_grads + (step * units + tl.load(tile)) * width + at, total, mask=inside)


def _launch(
    kernel: Any, numbers: Sequence[int], tile: tuple[int, int], like: Tensor, *tensors: Tensor, **options: Any
) -> None:
    """Run a kernel over all tiles of all steps; `like` has the width and the number of steps."""
    blocks, (steps, _, width), (rows, columns) = Blocks.from_numbers(numbers), like.shape, tile
    tables = _tables(tuple(numbers), rows, like.device)
    columns = min(columns, triton.next_power_of_2(width))
    grid = (steps * len(tables.tiles) * triton.cdiv(width, columns),)
    kernel[grid](
        *tensors[:3],
        tables.tiles,
        tables.readings,
        *tensors[3:],
        tile_count=len(tables.tiles),
        units=blocks.networks * blocks.own,
        evaluations=blocks.networks * blocks.evaluations,
        width=width,
        DRAWS=any(source == DRAWN for _, source in blocks.pairs),
        ROWS=rows,
        COLUMNS=columns,
        num_warps=WARPS,
        **options,
    )


@torch.library.custom_op("echelon::spread", mutates_args=())
def _spread(
    projected: Tensor, cond: Tensor, drawn: Tensor | None, blocks: Sequence[int], rows: int, activate: bool
) -> Tensor:
    """`rows` is for the backward pass; `drawn` is needed if a pair reads the drawn follower."""
    outputs = _empty_outputs(projected, cond, drawn, blocks, rows, activate)
    unread = outputs if drawn is None else drawn
    given = (projected.contiguous(), cond.contiguous(), unread, outputs)
    _launch(_forward, blocks, FORWARD, projected, *given, ACTIVATE=activate)
    return outputs


@_spread.register_fake
def _empty_outputs(
    projected: Tensor, cond: Tensor, drawn: Tensor | None, blocks: Sequence[int], rows: int, activate: bool
) -> Tensor:
    cut = Blocks.from_numbers(blocks)
    return projected.new_empty(projected.shape[0], cut.networks * cut.evaluations, projected.shape[2])


@torch.library.custom_op("echelon::spread_backward", mutates_args=())
def _spread_backward(
    grad: Tensor, outputs: Tensor | None, drawn: Tensor | None, blocks: Sequence[int], rows: int
) -> tuple[Tensor, Tensor]:
    """The units' gradient, and partial sums `[M, slots, W]` of that of `cond`, each over `rows` units.

    Without outputs there is no activation.
    """
    grad = grad.contiguous()
    tables = _tables(tuple(blocks), rows, grad.device)
    unit_grads, partials = _empty_gradients(grad, outputs, drawn, blocks, rows)
    if not tables.complete:
        partials.zero_()  # some slots have nothing to add
    activated = grad if outputs is None else outputs.contiguous()
    given = (grad, activated, grad if drawn is None else drawn, unit_grads, partials)
    counts = {"slots": tables.slots, "all_slots": partials.shape[1]}
    _launch(_backward, blocks, (rows, BACKWARD[1]), grad, *given, ACTIVATE=outputs is not None, **counts)
    return unit_grads, partials


@_spread_backward.register_fake
def _empty_gradients(
    grad: Tensor, outputs: Tensor | None, drawn: Tensor | None, blocks: Sequence[int], rows: int
) -> tuple[Tensor, Tensor]:
    cut, (steps, _, width) = Blocks.from_numbers(blocks), grad.shape
    slots, policies = max(_slots(cut, rows)[0]), cut.networks * cut.policies
    partials = grad.new_empty((policies, steps * slots, width), dtype=torch.float32)
    return grad.new_empty(steps, cut.networks * cut.own, width), partials


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, cond, drawn, ctx.blocks, ctx.rows, activate = inputs
    ctx.kind = cond.dtype
    ctx.save_for_backward(drawn, *([output] if activate else []))


def _gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    drawn, *outputs = ctx.saved_tensors
    unit_grads, partials = _spread_backward(grad, outputs[0] if outputs else None, drawn, ctx.blocks, ctx.rows)
    return unit_grads, partials.sum(1).to(ctx.kind), None, None, None, None


_spread.register_autograd(_gradients, setup_context=_keep)
