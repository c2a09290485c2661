"""MuJoCo Warp's Newton solver as one kernel: 32 threads solve a world from its warm start to the end.

The stock solver launches some ten kernels per iteration over all worlds until the last one has converged, and matrices go
through memory between them. Here a world's matrices stay in shared memory and registers, and a world that has converged
makes room for the next. The arithmetic is that of `mujoco_warp.solve`: the same warm start, line search, tolerances,
limits and overflow bits; only sums run in another order. `newton.cu` has the equations and what lies where.

It needs MuJoCo Warp's Model and Data and nothing else of Echelon:

    from echelon.sim import newton
    reason = newton.unsupported(model, data)     # None, or why this model keeps the stock solver
    newton.solve(model, data)                    # in place of mujoco_warp.solve(model, data)

or, for code that calls `mujoco_warp.step`, `newton.install()` once.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any, Literal, cast

import mujoco_warp as mjw
import warp as wp
from mujoco_warp._src import smooth
from mujoco_warp._src.types import ConstraintState, ConstraintType, DisableBit, vec5

TESTED = ("4.0.0",)
"""Versions of MuJoCo Warp whose private fields are known to mean what is read here."""
WARP = 32
SHARED_BYTES = 48 * 1024
"""Shared memory that a block can have without asking for more."""
REST_BLOCKS = 1056
"""Blocks that look for worlds with many rows: eight for each of an H200's multiprocessors."""


@wp.struct
class Problem:
    """What the kernel reads and writes: fields of Model and Data by their names there."""

    worlds: int
    blocks: int
    iterations: int
    warm: bool
    cold: bool
    tolerance: wp.array[float]
    ls_tolerance: wp.array[float]
    impratio_invsqrt: wp.array[float]
    jnt_dofadr: wp.array[int]
    M_row: wp.array[int]
    M_column: wp.array[int]
    ne: wp.array[int]
    nf: wp.array[int]
    nefc: wp.array[int]
    qacc_warmstart: wp.array2d[float]
    qacc_smooth: wp.array2d[float]
    qfrc_smooth: wp.array2d[float]
    M: wp.array2d[float]
    friction: wp.array[vec5]
    efc_address: wp.array2d[int]
    type: wp.array2d[int]
    id: wp.array2d[int]
    J: wp.array3d[float]
    D: wp.array2d[float]
    aref: wp.array2d[float]
    frictionloss: wp.array2d[float]
    qacc: wp.array2d[float]
    Ma: wp.array2d[float]
    qfrc_constraint: wp.array2d[float]
    force: wp.array2d[float]
    state: wp.array2d[int]
    niter: wp.array[int]
    overflow: wp.array[int]


@dataclass(frozen=True)
class Size:
    """Constants of a compiled kernel, by the names that `newton.cu` gives them."""

    NV: int
    NV_PAD: int
    NJMAX: int
    NONZEROS: int
    LS_ITERATIONS: int
    ELLIPTIC: int
    JOINT_ROWS: int
    FEW_ROWS: int
    FEW_SLOTS: int
    PART: Literal[0, 1, 2]
    """0: all worlds; 1: those whose rows fit FEW_ROWS and FEW_SLOTS; 2: the others."""

    @property
    def rows(self) -> int:
        return self.FEW_ROWS if self.PART == 1 else self.NJMAX

    @property
    def slots(self) -> int:
        return self.FEW_SLOTS if self.PART == 1 else -(-self.NJMAX // WARP)

    @property
    def row_stride(self) -> int:
        """Floats from one row of J to the next: an odd number of fours, so that 32 rows lie in different banks."""
        fours = -(-self.NV // 4)
        return 4 * (fours if fours % 2 else fours + 1)

    @property
    def shared_bytes(self) -> int:
        cones = 2 * (WARP * self.slots + 8) if self.ELLIPTIC else 0
        return 4 * (self.rows * (self.row_stride + 1) + self.NV * 4 * -(-self.NV // 4) + 4 * WARP + 4 + cones)

    def source(self) -> str:
        """The text of the kernel with its constants."""
        constants = asdict(self) | {
            "NV4": 4 * -(-self.NV // 4),
            "ROWS": self.rows,
            "SLOTS": self.slots,
            "LD": self.row_stride,
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
        defines = "".join(f"#define {name} {value}\n" for name, value in constants.items())
        return defines + files("echelon.sim").joinpath("kernels/newton.cu").read_text()


@lru_cache(maxsize=None)
def _kernel(size: Size, registers: int) -> Any:
    """Compile lazily: Warp builds a kernel when it is first launched."""

    @wp.func_native(size.source())
    def newton(world: int, lane: int, data: Problem): ...

    limit = {"cuda_max_registers": registers} if registers else {}

    # fast division and square roots, as in the stock line search
    @wp.kernel(module="unique", enable_backward=False, grid_stride=False, module_options={"fast_math": True}, **limit)
    def fused_newton(data: Problem):
        block, lane = wp.tid()
        for world in range(block, data.worlds, data.blocks):
            newton(world, lane, data)

    return fused_newton


def unsupported(m: Any, d: Any) -> str | None:
    """Say why a model keeps the stock solver, or None if the fused one can solve it."""
    if mjw.__version__ not in TESTED:
        return f"MuJoCo Warp {mjw.__version__} has not been tested with it (tested: {', '.join(TESTED)})"
    opt = m.opt
    if opt.solver != mjw.SolverType.NEWTON:
        return "the model's solver is not Newton"
    if m.nv > WARP:
        return f"the model has {m.nv} degrees of freedom, more than {WARP}"
    if m.is_sparse:
        return "the model's Jacobian is sparse"
    if d.njmax == 0:
        return "the model has no constraints"
    if opt.cone == mjw.ConeType.ELLIPTIC and int(m.nmaxcondim) > 3:
        return "elliptic contacts of condim 4 or 6"
    if opt.integrator == mjw.IntegratorType.DISCRETE or opt.noslip_iterations or opt.enableflags & mjw.EnableBit.SLEEP or m.nflex:
        return "the model uses the discrete integrator, noslip, sleeping or flex"
    room = max(size.shared_bytes for size in _sizes(m, d))
    if room > SHARED_BYTES:
        return f"{d.njmax} rows of constraints take {room:,} bytes of shared memory, more than {SHARED_BYTES:,}"
    return None


def _sizes(m: Any, d: Any) -> list[Size]:
    """One kernel, or two where most worlds need much less room than the buffers have."""
    few = 64 if d.njmax <= 140 else 96
    return [
        Size(
            NV=m.nv,
            NV_PAD=m.nv_pad,
            NJMAX=d.njmax,
            NONZEROS=m.M_colind.shape[0],
            LS_ITERATIONS=int(m.opt.ls_iterations),
            ELLIPTIC=int(m.opt.cone == mjw.ConeType.ELLIPTIC),
            JOINT_ROWS=int(m.jnt_limited_ball_adr.size == 0),
            FEW_ROWS=few,
            FEW_SLOTS=-(-few // WARP) + 1,
            PART=cast(Literal[0, 1, 2], part),
        )
        for part in ((1, 2) if d.njmax > few else (0,))
    ]


def solve(m: Any, d: Any, registers: int = 128) -> None:
    """Solve every world, in place of `mujoco_warp.solve`; only for models that are not `unsupported`."""
    for size in _sizes_of(m, d):
        data = _problem(m, d)
        data.blocks = min(d.nworld, REST_BLOCKS) if size.PART == 2 else d.nworld
        wp.launch_tiled(_kernel(size, registers), dim=data.blocks, inputs=[data], block_dim=WARP)


def _sizes_of(m: Any, d: Any) -> list[Size]:
    """`_sizes`, kept with the data: they read the device, which a CUDA graph under record must not."""
    if not hasattr(d, "echelon_sizes"):
        object.__setattr__(d, "echelon_sizes", _sizes(m, d))
    return d.echelon_sizes


def _problem(m: Any, d: Any) -> Any:
    data = Problem()
    data.worlds, data.iterations = d.nworld, int(m.opt.iterations)
    data.warm = not m.opt.disableflags & DisableBit.WARMSTART
    data.cold = not smooth.skip_qacc_smooth(m, d)
    data.tolerance, data.ls_tolerance, data.impratio_invsqrt = m.opt.tolerance, m.opt.ls_tolerance, m.opt.impratio_invsqrt
    data.jnt_dofadr, data.M_row, data.M_column = m.jnt_dofadr, m.M_hinit_i, m.M_colind
    data.friction, data.efc_address = d.contact.friction, d.contact.efc_address
    for name in ("ne", "nf", "nefc", "qacc_warmstart", "qacc_smooth", "qfrc_smooth", "M", "qacc", "qfrc_constraint", "overflow"):
        setattr(data, name, getattr(d, name))
    for name in ("type", "id", "J", "D", "aref", "frictionloss", "Ma", "force", "state"):
        setattr(data, name, getattr(d.efc, name))
    data.niter = d.solver_niter
    return data
