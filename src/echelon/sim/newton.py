"""MuJoCo Warp's Newton solver as one kernel: 32 threads solve a world from its warm start to the end.

The stock solver launches some ten kernels per iteration over all worlds until the last one has converged, and matrices
go through memory between them. Here a world's matrices stay in shared memory and registers, and a world that has
converged makes room for the next. The arithmetic is that of `mujoco_warp.solve`: the same warm start, line search,
tolerances, limits and overflow bits; only sums run in another order. `kernels/newton.cu` begins with the equations and
with what lies where.

It needs MuJoCo Warp's Model and Data and nothing else of Echelon. Anyone with MuJoCo Warp can call `solve` in place of
`mujoco_warp.solve`, or `install` once, before `mujoco_warp.step` is called or captured.
"""

from copy import copy
from dataclasses import dataclass
from typing import Any

import mujoco
import mujoco_warp as mjw
from mujoco_warp._src import smooth, solver
from mujoco_warp._src.types import ConstraintState, ConstraintType, DisableBit

from echelon.sim.kernel import WARP, Kernel, unknown

MOST_DOFS = 2 * WARP
"""Degrees of freedom that the kernel can hold: two for each thread."""
SHARED_BYTES = 48 * 1024
"""Shared memory that a block has by default."""
REST_BLOCKS = 1056
"""Blocks that look for worlds with many rows: eight for each of an H200's multiprocessors."""
CODES = {
    "FRICTION_ROW": int(ConstraintType.FRICTION_DOF),
    "LIMIT_ROW": int(ConstraintType.LIMIT_JOINT),
    "ELLIPTIC_ROW": int(ConstraintType.CONTACT_ELLIPTIC),
    "SATISFIED": int(ConstraintState.SATISFIED),
    "QUADRATIC": int(ConstraintState.QUADRATIC),
    "LINEAR_BELOW": int(ConstraintState.LINEARNEG),
    "LINEAR_ABOVE": int(ConstraintState.LINEARPOS),
    "CONE": int(ConstraintState.CONE),
    "ITERATIONS_BIT": int(mjw.OverflowType.ITERATIONS),
    "LS_ITERATIONS_BIT": int(mjw.OverflowType.LS_ITERATIONS),
}
"""MuJoCo Warp's numbers, by the names that `newton.cu` gives them."""


@dataclass(frozen=True)
class Size:
    """One of the kernels: what it is compiled with and what it takes."""

    constants: dict[str, int]
    """By the names that `newton.cu` gives them."""
    shared_bytes: int
    registers: int
    blocks: int | None


def unsupported(m: Any, d: Any) -> str | None:
    """Say why a model keeps the stock solver, or None if the fused one can solve it."""
    opt = m.opt
    if reason := unknown(m, d, "newton"):
        return reason
    if opt.solver != mjw.SolverType.NEWTON:
        return "the model's solver is not Newton"
    if m.nv > MOST_DOFS:
        return f"the model has {m.nv} degrees of freedom, more than {MOST_DOFS}"
    if m.is_sparse:
        return "the model's Jacobian is sparse"
    if d.njmax == 0:
        return "the model has no constraints"
    discrete, sleeping = opt.integrator == mjw.IntegratorType.DISCRETE, opt.enableflags & mjw.EnableBit.SLEEP
    if discrete or opt.noslip_iterations or sleeping or m.nflex:
        return "the model uses the discrete integrator, noslip, sleeping or flex"
    room = max(size.shared_bytes for size in _sizes(m, d))
    if room > SHARED_BYTES:
        return f"{d.njmax} rows of constraints take {room:,} bytes of shared memory, more than {SHARED_BYTES:,}"
    return None


def dense(model: mujoco.MjModel) -> mujoco.MjModel:
    """A model with the dense Jacobian that the kernel needs; the same one where MuJoCo Warp's own choice stands."""
    if not WARP < model.nv <= MOST_DOFS or model.opt.jacobian != mujoco.mjtJacobian.mjJAC_AUTO:
        return model
    model = copy(model)
    model.opt.jacobian = mujoco.mjtJacobian.mjJAC_DENSE
    return model


def few_rows(nv: int, njmax: int) -> int:
    """Rows of contacts that the kernel for most worlds has room for."""
    return 64 if njmax <= 140 or nv > WARP else 96


def _sizes(m: Any, d: Any) -> list[Size]:
    """One kernel, or two where most worlds need much less room than the buffers have."""
    nv, njmax, few = m.nv, d.njmax, few_rows(m.nv, d.njmax)
    columns, fours, few_slots = -(-nv // WARP), -(-nv // 4), -(-few // WARP) + 1
    row_stride = 4 * (fours | 1)  # floats from one row of J to the next: 32 rows lie in different banks
    lower_stride = (nv - WARP) | 1  # from one column to the next of what the factor has below its first 32 rows
    elliptic, tree = m.opt.cone == mjw.ConeType.ELLIPTIC, max((tile.size for tile in m.M_tiles), default=0)
    sizes = []
    # Part 0 serves all worlds; or 1 those whose rows fit `few` and its slots, and 2 the others.
    for part in (1, 2) if njmax > few else (0,):
        rows, slots = (few, few_slots) if part == 1 else (njmax, -(-njmax // WARP))
        constants = {
            "NV": nv,
            "NV_PAD": m.nv_pad,
            "NJMAX": njmax,
            "NONZEROS": m.M_colind.shape[0],
            "TREE": tree,
            "ITERATIONS": int(m.opt.iterations),
            "LS_ITERATIONS": int(m.opt.ls_iterations),
            "ELLIPTIC": int(elliptic),
            "CONDIM": max(3, int(m.nmaxcondim)),
            "JOINT_ROWS": int(m.jnt_limited_ball_adr.size == 0),
            "FEW_ROWS": few,
            "PART": part,
            "NV4": 4 * fours,
            "COLUMNS": columns,
            "DOFS": WARP * columns,
            "KEEP_H": int(columns == 1),
            "FEW_SLOTS": few_slots,
            "ROWS": rows,
            "SLOTS": slots,
            "LD": row_stride,
            "UD": lower_stride,
        } | CODES
        floats = rows * (row_stride + 1) + nv * tree + 6 * WARP * columns + 4
        floats += (WARP * lower_stride if columns > 1 else 0) + (2 * (WARP * slots + 8) if elliptic else 0)
        # Fastest on an H200: more registers where a column of H is long, or J is large. 224 is not measured: what nine
        # worlds, that shared memory has room for, leave each thread.
        registers = 224 if columns > 1 else 128 if nv <= 24 and rows <= 64 else 168
        sizes.append(Size(constants, 4 * floats, registers, REST_BLOCKS if part == 2 else None))
    return sizes


def solve(m: Any, d: Any) -> None:
    """Solve every world, in place of `mujoco_warp.solve`; only for models that are not `unsupported`."""
    start = {"WARM": int(not m.opt.disableflags & DisableBit.WARMSTART), "COLD": int(not smooth.skip_qacc_smooth(m, d))}
    sizes = _sizes(m, d)
    if getattr(d, "echelon_newton", (None,))[0] != (sizes, start):  # the first call, or other options
        kernels = [  # fast division and square roots, as in the stock line search
            Kernel("newton", x.constants | start, m, d, blocks=x.blocks, registers=x.registers, fast_math=True)
            for x in sizes
        ]
        d.echelon_newton = (sizes, start), kernels
    for kernel in d.echelon_newton[1]:
        kernel.launch()


def install() -> None:
    """Let `mujoco_warp.step` use this solver in this process, for every model that it supports."""
    if solver.solve is not _choose:
        _choose.stock = solver.solve  # pyright: ignore[reportFunctionMemberAccess]
        solver.solve = _choose


def _choose(m: Any, d: Any) -> None:
    (_choose.stock if unsupported(m, d) else solve)(m, d)  # pyright: ignore[reportFunctionMemberAccess]
