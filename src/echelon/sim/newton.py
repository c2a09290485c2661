"""MuJoCo Warp's Newton solver as one kernel: 32 threads solve a world from its warm start to the end.

The stock solver launches some ten kernels per iteration over all worlds until the last one has converged, and matrices
go through memory between them. Here a world's matrices stay in shared memory and registers, and a world that has
converged makes room for the next. The arithmetic is that of `mujoco_warp.solve`: the same warm start, line search,
tolerances, limits and overflow bits; only sums run in another order. `kernels/newton.cu` begins with the equations and
with what lies where.

It needs MuJoCo Warp's Model and Data and nothing else of Echelon, so anyone with MuJoCo Warp can use it:

    from echelon.sim import newton
    newton.unsupported(model, data)   # None, or why this model keeps the stock solver
    newton.solve(model, data)         # in place of mujoco_warp.solve(model, data)
    newton.install()                  # or once, before mujoco_warp.step is called or captured
"""

from copy import copy
from dataclasses import asdict, dataclass
from typing import Any, Literal, cast

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


@dataclass(frozen=True)
class Size:
    """Constants of a compiled kernel, by the names that `newton.cu` gives them."""

    NV: int
    NV_PAD: int
    NJMAX: int
    NONZEROS: int
    TREE: int
    """Degrees of freedom of the largest tree."""
    ITERATIONS: int
    LS_ITERATIONS: int
    ELLIPTIC: int
    CONDIM: int
    JOINT_ROWS: int
    FEW_ROWS: int
    PART: Literal[0, 1, 2]
    """0: all worlds; 1: those whose rows fit FEW_ROWS and FEW_SLOTS; 2: the others."""

    @property
    def columns(self) -> int:
        return -(-self.NV // WARP)

    @property
    def few_slots(self) -> int:
        return -(-self.FEW_ROWS // WARP) + 1

    @property
    def rows(self) -> int:
        return self.FEW_ROWS if self.PART == 1 else self.NJMAX

    @property
    def slots(self) -> int:
        return self.few_slots if self.PART == 1 else -(-self.NJMAX // WARP)

    @property
    def row_stride(self) -> int:
        """Floats from one row of J to the next: an odd number of fours, so that 32 rows lie in different banks."""
        fours = -(-self.NV // 4)
        return 4 * (fours if fours % 2 else fours + 1)

    @property
    def lower_stride(self) -> int:
        """Floats from one column to the next of what the factor has below its first 32 rows: an odd number."""
        return (self.NV - WARP) | 1

    @property
    def shared_bytes(self) -> int:
        cones = 2 * (WARP * self.slots + 8) if self.ELLIPTIC else 0
        lower = WARP * self.lower_stride if self.columns > 1 else 0
        vectors = 6 * WARP * self.columns + 4
        return 4 * (self.rows * (self.row_stride + 1) + self.NV * self.TREE + vectors + lower + cones)

    @property
    def registers(self) -> int:
        """Registers per thread that were fastest on an H200: more where a column of H is long, or J is large."""
        if self.columns > 1:
            return 224  # not measured: what nine worlds, that shared memory has room for, leave each thread
        return 128 if self.NV <= 24 and self.rows <= 64 else 168

    def constants(self) -> dict[str, int]:
        return asdict(self) | {
            "NV4": 4 * -(-self.NV // 4),
            "COLUMNS": self.columns,
            "DOFS": WARP * self.columns,
            "KEEP_H": int(self.columns == 1),
            "FEW_SLOTS": self.few_slots,
            "ROWS": self.rows,
            "SLOTS": self.slots,
            "LD": self.row_stride,
            "UD": self.lower_stride,
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
    if (
        opt.integrator == mjw.IntegratorType.DISCRETE
        or opt.noslip_iterations
        or opt.enableflags & mjw.EnableBit.SLEEP
        or m.nflex
    ):
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
    few = few_rows(m.nv, d.njmax)
    return [
        Size(
            NV=m.nv,
            NV_PAD=m.nv_pad,
            NJMAX=d.njmax,
            NONZEROS=m.M_colind.shape[0],
            TREE=max((tile.size for tile in m.M_tiles), default=0),
            ITERATIONS=int(m.opt.iterations),
            LS_ITERATIONS=int(m.opt.ls_iterations),
            ELLIPTIC=int(m.opt.cone == mjw.ConeType.ELLIPTIC),
            CONDIM=max(3, int(m.nmaxcondim)),
            JOINT_ROWS=int(m.jnt_limited_ball_adr.size == 0),
            FEW_ROWS=few,
            PART=cast(Literal[0, 1, 2], part),
        )
        for part in ((1, 2) if d.njmax > few else (0,))
    ]


def solve(m: Any, d: Any) -> None:
    """Solve every world, in place of `mujoco_warp.solve`; only for models that are not `unsupported`."""
    start = {"WARM": int(not m.opt.disableflags & DisableBit.WARMSTART), "COLD": int(not smooth.skip_qacc_smooth(m, d))}
    sizes = _sizes(m, d)
    if getattr(d, "echelon_newton", (None,))[0] != (sizes, start):  # the first call, or other options
        d.echelon_newton = (sizes, start), [_kernel(size, start, m, d) for size in sizes]
    for kernel in d.echelon_newton[1]:
        kernel.launch()


def _kernel(size: Size, start: dict[str, int], m: Any, d: Any) -> Kernel:
    blocks = REST_BLOCKS if size.PART == 2 else None
    # fast division and square roots, as in the stock line search
    return Kernel("newton", size.constants() | start, m, d, blocks=blocks, registers=size.registers, fast_math=True)


def install() -> None:
    """Let `mujoco_warp.step` use this solver in this process, for every model that it supports."""
    if solver.solve is not _choose:
        _choose.stock = solver.solve  # pyright: ignore[reportFunctionMemberAccess]
        solver.solve = _choose


def _choose(m: Any, d: Any) -> None:
    (_choose.stock if unsupported(m, d) else solve)(m, d)  # pyright: ignore[reportFunctionMemberAccess]
