"""MuJoCo Warp's smooth dynamics and integration as two kernels, a warp of 32 threads per world.

Stock MuJoCo Warp launches 55 to 110 small kernels for what is not collision, constraints or their solver, and passes
every intermediate result through memory. Here `forward` goes from positions, velocities and controls to the inertia and
the smooth force, and `integrate` from the solved acceleration to the next state. `kernels/forward.cu` and
`kernels/integrate.cu` begin with the equations and with what lies where in shared memory. The arithmetic is that of
MuJoCo Warp 4.0 with sums in another order.
"""

from typing import Any

import mujoco_warp as mjw
import numpy as np
import warp as wp
from mujoco_warp._src.smooth import skip_qacc_smooth
from mujoco_warp._src.types import BiasType, BroadphaseType, DisableBit, DynType, EnableBit, GainType, TrnType, WrapType

from echelon.sim.kernel import WARP, Kernel

STAGED = 12 * WARP
"""Floats of shared memory that stage the poses of 32 geoms before they are written."""


def unsupported(m: Any) -> str | None:
    """Say why a model needs the stock functions, or return None if the kernels serve it.

    Reads constants of the model back from the device: not for use while a CUDA graph is captured.
    """
    opt, callback = m.opt, m.callback
    joint = m.jnt_type.numpy()
    turning = (joint == mjw.JointType.FREE) | (joint == mjw.JointType.BALL)
    driven = turning[m.actuator_trnid.numpy()[:, 0]]
    integrators = (mjw.IntegratorType.EULER, mjw.IntegratorType.IMPLICITFAST)
    parts = DisableBit.ACTUATION | DisableBit.SPRING | DisableBit.DAMPER | DisableBit.EULERDAMP
    reasons = {
        "no degrees of freedom": m.nv == 0,
        "an integrator other than Euler and implicitfast": opt.integrator not in integrators,
        "disabled parts": bool(opt.disableflags & (parts | DisableBit.GRAVITY | DisableBit.CLAMPCTRL)),
        "sleeping bodies or energies": bool(opt.enableflags & (EnableBit.SLEEP | EnableBit.ENERGY)),
        "equality constraints": m.neq > 0,
        "flexible bodies": m.nflex > 0,
        "a fluid": bool(m.has_fluid),
        "adhesion": bool(m.flg_adhesion),
        "plastic springs": m.nplastic > 0,
        "callbacks": any((callback.control, callback.passive, callback.act_dyn, callback.act_gain, callback.act_bias)),
        "springs of free or ball joints": _any(m.jnt_stiffness, turning) or _any(m.jnt_stiffnesspoly, turning),
        "gravity compensation by actuators": _any(m.jnt_actgravcomp),
        "actuators with activation": m.na > 0 or not _only(m.actuator_dyntype, DynType.NONE),
        "delayed actuators or sensors": m.nhistory > 0,
        "actuators of other things than hinges and slides": not _only(m.actuator_trntype, TrnType.JOINT)
        or driven.any(),
        "gains of actuators beyond affine": not _only(m.actuator_gaintype, GainType.FIXED, GainType.AFFINE),
        "biases of actuators beyond affine": not _only(m.actuator_biastype, BiasType.NONE, BiasType.AFFINE),
        "dampers of actuators": _any(m.actuator_damping) or _any(m.actuator_dampingpoly),
        "armature of actuators or tendons": _any(m.actuator_armature) or _any(m.tendon_armature),
        "tendons along sites": not _only(m.wrap_type, WrapType.JOINT),
        "springs of tendons": _any(m.tendon_stiffness) or _any(m.tendon_stiffnesspoly),
        "dampers of tendons": _any(m.tendon_damping) or _any(m.tendon_dampingpoly),
    }
    return next((reason for reason, present in reasons.items() if present), None)


def _any(field: Any, where: Any = slice(None)) -> bool:
    """Whether a field of the model, `[items]` or `[worlds, items, ...]`, is nonzero anywhere."""
    values = field.numpy()
    return bool((values[:, where] if values.ndim > 1 else values[where]).any())


def _only(field: Any, *kinds: int) -> bool:
    return bool(np.isin(field.numpy(), [int(kind) for kind in kinds]).all())


class SmoothDynamics:
    """The kernels for one Model and Data, and tables of the model's trees."""

    def __init__(self, m: Any, d: Any) -> None:
        self.m, self.d = m, d
        self._kernels: dict[tuple[Any, ...], Kernel] = {}
        parent, joint, body = m.body_parentid.numpy(), m.dof_jntid.numpy(), m.geom_bodyid.numpy()
        fixed = (m.body_weldid.numpy()[body] == 0) & (m.body_mocapid.numpy()[m.body_rootid.numpy()[body]] == -1)
        moving = np.flatnonzero(~fixed)  # poses of the others, fixed to the world, never change
        every_pair = m.opt.broadphase == BroadphaseType.NXN
        colliding = np.unique(m.nxn_geom_pair_filtered.numpy()) if every_pair else np.arange(m.ngeom)
        jump = _jumps(parent)
        implicit = m.opt.integrator == mjw.IntegratorType.IMPLICITFAST
        free = m.body_freeadr.numpy() if implicit else np.zeros(0, int)
        level = np.where(np.isin(m.dof_bodyid.numpy(), free), -1, m.M_rownnz.numpy() - 1)
        items = [[(dof, k) for dof in np.flatnonzero(level == n) for k in range(n + 2)] for n in range(level.max() + 1)]
        target = m.jnt_dofadr.numpy()[m.actuator_trnid.numpy()[:, 0]]
        actuators = [np.flatnonzero(target == dof) for dof in range(m.nv)]
        tables = {
            "jump": jump.ravel(),
            "geoms": np.intersect1d(moving, colliding),
            "all_geoms": moving,
            "contact_room": np.array([d.naconmax]),
            "free": free,
            "dof_qposadr": m.jnt_qposadr.numpy()[joint] + np.arange(m.nv) - m.jnt_dofadr.numpy()[joint],
            "dof_actuatoradr": np.cumsum([0, *map(len, actuators)]),
            "dof_actuator": np.concatenate(actuators),
            "dof_level": level,
            "dof_last": _last_descendants(m),
            "level_item": np.cumsum([0, *map(len, items)]),
            "level_share": np.array([1 << max(WARP // len(x), 1).bit_length() - 1 for x in items]),
            "item_dof": np.array([dof for x in items for dof, _ in x]),
            "item_column": np.array([column for x in items for _, column in x]),
        }
        device = d.qpos.device
        self._tables = {name: wp.array(x.astype(np.int32), dtype=int, device=device) for name, x in tables.items()}
        self._tables["tendon_weight"] = wp.array(_tendon_weights(m), dtype=float, device=device)
        self._tables["implicit_damping"] = wp.zeros((d.nworld, m.nv), dtype=float, device=device)
        self._sizes = {
            **{name: getattr(m, name.lower()) for name in ("NQ", "NV", "NBODY", "NJNT", "NSITE", "NTENDON")},
            "NC": m.M_colind.shape[0],
            "NFREE": len(free),
            "PARENTS": ", ".join(map(str, parent)),
            "ROUNDS": len(jump),
            "LEVELS": len(items),
            "SLOTS": -(-m.nbody // WARP),
            "WIDE": max(m.nbody, m.nv, m.njnt),
            "BODIES": max(17 * m.nbody, STAGED),
            "NJMAX": d.njmax,
            "IMPLICIT": int(implicit),
            **{name: int(mjw.JointType[name]) for name in ("FREE", "BALL", "SLIDE", "HINGE")},
            "AFFINE_GAIN": int(GainType.AFFINE),
            "AFFINE_BIAS": int(BiasType.AFFINE),
            **{f"{name}_BIT": int(mjw.OverflowType[name]) for name in ("NEFC", "BROADPHASE", "NARROWPHASE")},
            "MINVAL": "1e-15f",
        }

    def forward(self, everything: bool = False) -> None:
        """Compute M, qfrc_smooth and the poses that collision and constraints read.

        `everything` writes all other fields that the stock functions do, for sensors and readers; not actuator_moment.
        """
        self._launch("forward", everything, FORCES=1)
        if not skip_qacc_smooth(self.m, self.d):
            mjw.factor_m(self.m, self.d)
            mjw.solve_m(self.m, self.d, self.d.qacc_smooth, self.d.qfrc_smooth)

    def kinematics(self) -> None:
        """Update all poses and velocities, but not those of cameras and lights."""
        self._launch("forward", everything=True, FORCES=0)

    def integrate(self) -> None:
        """Advance the state by a timestep."""
        self._launch("integrate")

    def _launch(self, name: str, everything: bool = False, **options: int) -> None:
        key = (name, everything, *options.values())
        if key not in self._kernels:
            geoms = self._tables["all_geoms" if everything else "geoms"]
            sizes = self._sizes | {"NGEOM": geoms.size, "EVERYTHING": int(everything)} | options
            self._kernels[key] = Kernel(name, sizes, self.m, self.d, self._tables)
        self._kernels[key].launch()


def _jumps(parent: np.ndarray) -> np.ndarray:
    """`[rounds, bodies]`: each body's ancestor 1, 2, 4, ... levels up, 0 where there is none."""
    rounds = [parent]
    while (further := rounds[-1][rounds[-1]]).any():
        rounds.append(further)
    return np.array(rounds)


def _last_descendants(m: Any) -> np.ndarray:
    """Each dof's last descendant; descendants follow their dof without a gap."""
    start, count, column = m.M_rowadr.numpy(), m.M_rownnz.numpy(), m.M_colind.numpy()
    last = np.arange(m.nv)
    for dof in range(m.nv):
        last[column[start[dof] : start[dof] + count[dof]]] = dof
    return last


def _tendon_weights(m: Any) -> np.ndarray:
    """Weights of joints in tendons, in the order of `ten_J`."""
    weights = np.zeros(m.ten_J_colind.shape[0], np.float32)
    start, count, column = m.ten_J_rowadr.numpy(), m.ten_J_rownnz.numpy(), m.ten_J_colind.numpy()
    for tendon, wrap in zip(m.tendon_jnt_adr.numpy(), m.wrap_jnt_adr.numpy(), strict=True):
        row = start[tendon] + np.arange(count[tendon])
        dof = m.jnt_dofadr.numpy()[m.wrap_objid.numpy()[wrap]]
        weights[row[column[row] == dof]] = m.wrap_prm.numpy()[wrap]
    return weights
