"""MuJoCo Warp's smooth dynamics and integration as two kernels, a warp of 32 threads per world.

Stock MuJoCo Warp launches 55 to 110 small kernels for what is not collision, constraints or their solver, and passes every
intermediate result through memory. Here `forward` goes from positions, velocities and controls to the inertia and the
smooth force, and `integrate` from the solved acceleration to the next state. The equations and the layout in shared memory
stand at the top of `kernels/forward.cu` and `kernels/integrate.cu`. The arithmetic is that of MuJoCo Warp 4.0 in another
order of sums. In place of the stock functions:

    smooth = SmoothDynamics(m, d)                    # if unsupported(m) is None
    smooth.forward()                                 # kinematics to fwd_acceleration
    mjw.collision(m, d); mjw.make_constraint(m, d)   # unchanged, as is mjw.solve(m, d)
    smooth.integrate()                               # mjw.implicit or mjw.euler
    smooth.kinematics()                              # mjw.fwd_kinematics and mjw.com_vel
"""

from functools import cache
from importlib.resources import files
from typing import Any

import mujoco_warp as mjw
import numpy as np
import warp as wp
from mujoco_warp._src.smooth import skip_qacc_smooth
from mujoco_warp._src.types import BiasType, BroadphaseType, DisableBit, DynType, EnableBit, GainType, TrnType, WrapType

_TESTED = "4.0."
"""Releases of MuJoCo Warp whose private fields these kernels are tested with."""
_MODEL = """
    body_parentid body_rootid body_mocapid body_jntadr body_jntnum body_dofadr body_dofnum body_subtreenum body_pos
    body_quat body_ipos body_iquat body_mass body_subtreemass body_inertia body_gravcomp
    jnt_type jnt_bodyid jnt_qposadr jnt_dofadr jnt_pos jnt_axis jnt_stiffness jnt_stiffnesspoly jnt_actfrclimited jnt_actfrcrange
    qpos0 qpos_spring dof_bodyid dof_jntid dof_armature dof_damping dof_dampingpoly
    geom_bodyid geom_pos geom_quat site_bodyid site_pos site_quat ten_J_rownnz ten_J_rowadr ten_J_colind
    actuator_gear actuator_gaintype actuator_gainprm actuator_biastype actuator_biasprm actuator_ctrllimited actuator_ctrlrange
    actuator_forcelimited actuator_forcerange M_rownnz M_rowadr M_colind M_hinit_i opt.timestep opt.gravity
""".split()
_DATA = """
    qpos qvel ctrl mocap_pos mocap_quat xfrc_applied qfrc_applied geom_xpos geom_xmat subtree_com cdof crb M qfrc_smooth
    ten_J ten_length ten_velocity
""".split()
_ALL_DATA = """
    xpos xquat xmat xipos ximat xanchor xaxis site_xpos site_xmat cinert cvel cdof_dot cacc cfrc_int qfrc_spring qfrc_damper
    qfrc_gravcomp qfrc_passive qfrc_bias qfrc_actuator actuator_length actuator_velocity actuator_force
""".split()
_END_DATA = "qpos qvel qacc qacc_warmstart M efc.Ma crb subtree_com time overflow nefc nacon ncollision".split()
"""Fields of Model and Data that the kernels read and write; those of `forward`, of its complete form, of `integrate`."""


def unsupported(m: Any) -> str | None:
    """Say why the stock functions are needed for a model, or return None if the kernels serve it.

    Reads constants of the model back from the device: not for use while a CUDA graph is captured.
    """
    opt, callback = m.opt, m.callback
    joint = m.jnt_type.numpy()
    turning = (joint == mjw.JointType.FREE) | (joint == mjw.JointType.BALL)
    targets = m.actuator_trnid.numpy()[:, 0]
    disabled = DisableBit.ACTUATION | DisableBit.SPRING | DisableBit.DAMPER | DisableBit.GRAVITY | DisableBit.CLAMPCTRL
    reasons = {
        f"MuJoCo Warp {mjw.__version__} (tested with {_TESTED}x)": not mjw.__version__.startswith(_TESTED),
        "an integrator other than Euler and implicitfast": opt.integrator not in (mjw.IntegratorType.EULER, mjw.IntegratorType.IMPLICITFAST),
        "no degrees of freedom": m.nv == 0,
        "disabled actuators, springs, dampers or gravity": bool(opt.disableflags & (disabled | DisableBit.EULERDAMP)),
        "sleeping bodies or energies": bool(opt.enableflags & (EnableBit.SLEEP | EnableBit.ENERGY)),
        "equality constraints": m.neq > 0,
        "flexible bodies": m.nflex > 0,
        "a fluid": bool(m.has_fluid),
        "adhesion": bool(m.flg_adhesion),
        "plastic springs": m.nplastic > 0,
        "callbacks": any((callback.control, callback.passive, callback.act_dyn, callback.act_gain, callback.act_bias)),
        "springs of free or ball joints": _any(m.jnt_stiffness, turning) or _any(m.jnt_stiffnesspoly, turning),
        "gravity compensation by actuators": _any(m.jnt_actgravcomp),
        "actuators with activation or delay": m.na > 0 or m.nhistory > 0 or not _only(m.actuator_dyntype, DynType.NONE),
        "actuators that are not on a hinge or slide": not _only(m.actuator_trntype, TrnType.JOINT) or bool(turning[targets].any()),
        "gains or biases of actuators beyond affine": not _only(m.actuator_gaintype, GainType.FIXED, GainType.AFFINE)
        or not _only(m.actuator_biastype, BiasType.NONE, BiasType.AFFINE),
        "damping or armature of actuators": _any(m.actuator_damping) or _any(m.actuator_dampingpoly) or _any(m.actuator_armature),
        "tendons along sites": not _only(m.wrap_type, WrapType.JOINT),
        "springs, dampers or armature of tendons": _any(m.tendon_stiffness)
        or _any(m.tendon_stiffnesspoly)
        or _any(m.tendon_damping)
        or _any(m.tendon_dampingpoly)
        or _any(m.tendon_armature),
    }
    return next((reason for reason, present in reasons.items() if present), None)


def _any(field: Any, where: Any = slice(None)) -> bool:
    """Whether a field of the model, `[items]` or `[worlds, items]`, is nonzero anywhere."""
    values = field.numpy()
    return bool(values.size and (values[:, where] if values.ndim > 1 else values[where]).any())


def _only(field: Any, *kinds: int) -> bool:
    return bool(np.isin(field.numpy(), [int(kind) for kind in kinds]).all())


class SmoothDynamics:
    """The kernels for one Model and Data."""

    def __init__(self, m: Any, d: Any) -> None:
        self.m, self.d = m, d
        parent, dof_joint = m.body_parentid.numpy(), m.dof_jntid.numpy()
        implicit = m.opt.integrator == mjw.IntegratorType.IMPLICITFAST
        free = m.body_freeadr.numpy() if implicit else np.zeros(0, int)
        level = np.where(np.isin(m.dof_bodyid.numpy(), free), -1, m.M_rownnz.numpy() - 1)
        items = [[(dof, k) for dof in np.flatnonzero(level == n) for k in range(n + 2)] for n in range(level.max() + 1)]
        jump = _jumps(parent)
        target = m.actuator_trnid.numpy()[:, 0]
        drives = [np.flatnonzero(m.jnt_dofadr.numpy()[target] == dof) for dof in range(m.nv)]
        offsets = np.arange(m.nv) - m.jnt_dofadr.numpy()[dof_joint]
        moving = _moving_geoms(m)
        tables = {
            "jump": jump.ravel(),
            "geoms": np.intersect1d(moving, _colliding_geoms(m)),
            "sites": np.arange(m.nsite),
            "free": free,
            "dof_qposadr": m.jnt_qposadr.numpy()[dof_joint] + offsets,
            "dof_actuatoradr": np.cumsum([0, *map(len, drives)]),
            "dof_actuator": np.concatenate(drives),
            "level_item": np.cumsum([0, *map(len, items)]),
            "level_share": np.array([1 << max(32 // len(x), 1).bit_length() - 1 for x in items]),
            "dof_level": level,
            "item_dof": np.array([dof for x in items for dof, _ in x]),
            "item_column": np.array([column for x in items for _, column in x]),
            "last_descendant": _last_descendants(m),
        }
        device = d.qpos.device
        self._tables = {name: wp.array(values.astype(np.int32), dtype=int, device=device) for name, values in tables.items()}
        self._tables["tendon_weight"] = wp.array(_tendon_weights(m), dtype=float, device=device)
        self._tables["stiffening"] = wp.zeros((d.nworld, m.nv), dtype=float, device=device)
        self._all_geoms = wp.array(moving.astype(np.int32), dtype=int, device=device)
        self._sizes = {
            "NQ": m.nq,
            "NV": m.nv,
            "NBODY": m.nbody,
            "NJNT": m.njnt,
            "NSITE": m.nsite,
            "NTENDON": m.ntendon,
            "NC": m.M_colind.shape[0],
            "NFREE": len(free),
            "LEVELS": len(items),
            "ROUNDS": len(jump),
            "SLOTS": -(-m.nbody // 32),
            "WIDE": max(m.nbody, m.nv, m.njnt),
            "BODIES": max(17 * m.nbody, 12 * 32),
            "PARENTS": ", ".join(map(str, parent)),
            "NJMAX": d.njmax,
            "NACONMAX": d.naconmax,
            "IMPLICIT": int(implicit),
            "FREE": int(mjw.JointType.FREE),
            "BALL": int(mjw.JointType.BALL),
            "SLIDE": int(mjw.JointType.SLIDE),
            "HINGE": int(mjw.JointType.HINGE),
            "AFFINE_GAIN": int(GainType.AFFINE),
            "AFFINE_BIAS": int(BiasType.AFFINE),
            "NEFC_BIT": int(mjw.OverflowType.NEFC),
            "BROADPHASE_BIT": int(mjw.OverflowType.BROADPHASE),
            "NARROWPHASE_BIT": int(mjw.OverflowType.NARROWPHASE),
            "MINVAL": "1e-15f",
        }

    def forward(self, everything: bool = False) -> None:
        """Compute M and qfrc_smooth, and the poses that collision and constraints read; `everything` for sensors and readers."""
        self._launch("forward", FORCES=1, EVERYTHING=int(everything))
        if not skip_qacc_smooth(self.m, self.d):
            mjw.factor_m(self.m, self.d)
            mjw.solve_m(self.m, self.d, self.d.qacc_smooth, self.d.qfrc_smooth)

    def kinematics(self) -> None:
        """Update all poses and velocities, except those of cameras and lights."""
        self._launch("forward", FORCES=0, EVERYTHING=1)

    def integrate(self) -> None:
        """Advance the state by a timestep."""
        self._launch("integrate")

    def _launch(self, text: str, **how: int) -> None:
        everything = bool(how.get("EVERYTHING"))
        tables = dict(self._tables)
        if everything:
            tables["geoms"] = self._all_geoms
        names = _END_DATA if text == "integrate" else _DATA + _ALL_DATA * everything
        groups = (
            {name.replace(".", "_"): _get(self.m, name) for name in _MODEL},
            {name.replace(".", "_"): _get(self.d, name) for name in names},
            tables,
        )
        kinds = tuple(tuple((name, x.dtype, x.ndim) for name, x in group.items()) for group in groups)
        sizes = {**self._sizes, "NGEOM": tables["geoms"].size, **how}
        kernel, structs = _build(text, tuple(sizes.items()), kinds)
        inputs = []
        for struct, group in zip(structs, groups, strict=True):
            filled = struct()
            for name, x in group.items():
                setattr(filled, name, x)
            inputs.append(filled)
        wp.launch_tiled(kernel, dim=self.d.nworld, inputs=inputs, block_dim=32, device=self.d.qpos.device)


def _get(owner: Any, name: str) -> Any:
    for part in name.split("."):
        owner = getattr(owner, part)
    return owner


@cache
def _build(text: str, sizes: tuple[tuple[str, Any], ...], kinds: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """Compile a kernel's text with sizes put in front of it; return it and the structs of its arguments."""
    source = files("echelon.sim") / "kernels"
    numbers = "".join(f"#define {name} {value}\n" for name, value in sizes)
    body = numbers + (source / "lanes.h").read_text() + (source / f"{text}.cu").read_text()
    body += "".join(f"#undef {name}\n" for name, _ in sizes)
    Model, Data, Tables = (
        wp.struct(type(name, (), {"__annotations__": {field: wp.array(dtype=dtype, ndim=ndim) for field, dtype, ndim in group}}))
        for name, group in zip(("Model", "Data", "Tables"), kinds, strict=True)
    )

    @wp.func_native(body)
    def run(world: int, lane: int, m: Model, d: Data, t: Tables): ...  # pyright: ignore[reportInvalidTypeForm]

    @wp.kernel(module="unique", enable_backward=False, grid_stride=False)
    def smooth_dynamics(m: Model, d: Data, t: Tables):  # pyright: ignore[reportInvalidTypeForm]
        world, lane = wp.tid()
        run(world, lane, m, d, t)

    return smooth_dynamics, (Model, Data, Tables)


def _jumps(parent: np.ndarray) -> np.ndarray:
    """`[rounds, bodies]`: each body's ancestor 1, 2, 4, ... levels up, 0 where there is none."""
    rounds = [parent]
    while (further := rounds[-1][rounds[-1]]).any():
        rounds.append(further)
    return np.array(rounds)


def _last_descendants(m: Any) -> np.ndarray:
    """Each dof's last descendant: descendants follow their dof without a gap."""
    start, count, column = m.M_rowadr.numpy(), m.M_rownnz.numpy(), m.M_colind.numpy()
    last = np.arange(m.nv)
    for dof in range(m.nv):
        last[column[start[dof] : start[dof] + count[dof]]] = dof
    return last


def _moving_geoms(m: Any) -> np.ndarray:
    """Geoms that are not fixed to the world."""
    body = m.geom_bodyid.numpy()
    fixed = (m.body_weldid.numpy()[body] == 0) & (m.body_mocapid.numpy()[m.body_rootid.numpy()[body]] == -1)
    return np.flatnonzero(~fixed)


def _colliding_geoms(m: Any) -> np.ndarray:
    """Geoms whose poses collision detection reads."""
    return np.unique(m.nxn_geom_pair_filtered.numpy()) if m.opt.broadphase == BroadphaseType.NXN else np.arange(m.ngeom)


def _tendon_weights(m: Any) -> np.ndarray:
    """Weights of joints in tendons, in the order of `ten_J`."""
    weights = np.zeros(m.ten_J_colind.shape[0], np.float32)
    dofs = m.jnt_dofadr.numpy()
    for tendon, wrap in zip(m.tendon_jnt_adr.numpy(), m.wrap_jnt_adr.numpy(), strict=True):
        row = m.ten_J_rowadr.numpy()[tendon] + np.arange(m.ten_J_rownnz.numpy()[tendon])
        weights[row[m.ten_J_colind.numpy()[row] == dofs[m.wrap_objid.numpy()[wrap]]]] += m.wrap_prm.numpy()[wrap]
    return weights
