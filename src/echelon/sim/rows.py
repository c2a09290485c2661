"""Constraint rows of a world in one kernel: friction and limits of joints, then contacts, for `echelon.sim.newton`.

MuJoCo Warp's `make_constraint` has a thread per row, each of which writes a whole row of the Jacobian and takes its place
by an atomic counter. Here 32 threads write the rows of one world; those of joints have one entry that anybody reads.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from typing import Any

import mujoco_warp as mjw
import numpy as np
import warp as wp
from mujoco_warp._src import types
from mujoco_warp._src.types import ConstraintType, ContactType, DisableBit, vec5

from echelon.sim import newton
from echelon.sim.newton import WARP


@wp.struct
class Fields:
    """What the kernel reads and writes: fields of Model and Data by their names there, and each world's contacts."""

    timestep: wp.array[float]
    impratio_invsqrt: wp.array[float]
    friction_dof: wp.array[int]
    limited_joint: wp.array[int]
    limited_tendon: wp.array[int]
    ten_J_rownnz: wp.array[int]
    ten_J_rowadr: wp.array[int]
    ten_J_colind: wp.array[int]
    tendon_solref_lim: wp.array2d[wp.vec2]
    tendon_solimp_lim: wp.array2d[vec5]
    tendon_range: wp.array2d[wp.vec2]
    tendon_margin: wp.array2d[float]
    tendon_invweight0: wp.array2d[float]
    jnt_qposadr: wp.array[int]
    jnt_dofadr: wp.array[int]
    geom_bodyid: wp.array[int]
    body_rootid: wp.array[int]
    body_isdofancestor: wp.array2d[int]
    body_invweight0: wp.array2d[wp.vec2]
    dof_solref: wp.array2d[wp.vec2]
    dof_solimp: wp.array2d[vec5]
    dof_frictionloss: wp.array2d[float]
    dof_invweight0: wp.array2d[float]
    jnt_solref: wp.array2d[wp.vec2]
    jnt_solimp: wp.array2d[vec5]
    jnt_range: wp.array2d[wp.vec2]
    jnt_margin: wp.array2d[float]
    qpos: wp.array2d[float]
    qvel: wp.array2d[float]
    cdof: wp.array2d[wp.spatial_vector]
    subtree_com: wp.array2d[wp.vec3]
    ten_length: wp.array2d[float]
    ten_J: wp.array2d[float]
    listed: wp.array2d[int]
    listed_count: wp.array[int]
    dist: wp.array[float]
    dim: wp.array[int]
    includemargin: wp.array[float]
    geom: wp.array[wp.vec2i]
    contact_pos: wp.array[wp.vec3]
    frame: wp.array[wp.mat33]
    friction: wp.array[vec5]
    solref: wp.array[wp.vec2]
    solreffriction: wp.array[wp.vec2]
    solimp: wp.array[vec5]
    efc_address: wp.array2d[int]
    ne: wp.array[int]
    nf: wp.array[int]
    nl: wp.array[int]
    nefc: wp.array[int]
    type: wp.array2d[int]
    id: wp.array2d[int]
    pos: wp.array2d[float]
    margin: wp.array2d[float]
    vel: wp.array2d[float]
    frictionloss: wp.array2d[float]
    D: wp.array2d[float]
    aref: wp.array2d[float]
    J: wp.array3d[float]


_MODEL = ("jnt_qposadr", "jnt_dofadr", "geom_bodyid", "body_rootid", "body_isdofancestor", "body_invweight0", "dof_solref", "dof_solimp",
          "dof_frictionloss", "dof_invweight0", "jnt_solref", "jnt_solimp", "jnt_range", "jnt_margin", "ten_J_rownnz", "ten_J_rowadr",
          "ten_J_colind", "tendon_solref_lim", "tendon_solimp_lim", "tendon_range", "tendon_margin", "tendon_invweight0")  # fmt: skip
_DATA = ("qpos", "qvel", "cdof", "subtree_com", "ten_length", "ten_J", "ne", "nf", "nl", "nefc")
_CONTACT = ("dist", "dim", "includemargin", "geom", "frame", "friction", "solref", "solreffriction", "solimp", "efc_address")
_ROWS = ("type", "id", "pos", "margin", "vel", "frictionloss", "D", "aref", "J")


_PARTS = int(DisableBit.CONSTRAINT | DisableBit.EQUALITY | DisableBit.FRICTIONLOSS | DisableBit.LIMIT | DisableBit.CONTACT)


@wp.kernel(enable_backward=False)
def _list_contacts(
    nacon: wp.array[int],
    kind: wp.array[int],
    world: wp.array[int],
    dist: wp.array[float],
    includemargin: wp.array[float],
    listed: wp.array2d[int],
    listed_count: wp.array[int],
):
    """Append each contact that pushes to its world's list."""
    contact = wp.tid()
    if contact >= nacon[0]:
        return
    if not (kind[contact] & int(ContactType.CONSTRAINT)) or dist[contact] - includemargin[contact] >= 0.0:
        return
    place = wp.atomic_add(listed_count, world[contact], 1)
    if place < listed.shape[1]:
        listed[world[contact], place] = contact


@lru_cache(maxsize=None)
def _kernel(constants: tuple[tuple[str, object], ...]) -> Any:
    defines = "".join(f"#define {name} {value}\n" for name, value in constants)

    @wp.func_native(defines + files("echelon.sim").joinpath("kernels/rows.cu").read_text())
    def rows(world: int, lane: int, data: Fields): ...

    @wp.kernel(module="unique", enable_backward=False, grid_stride=False)
    def constraint_rows(data: Fields):
        world, lane = wp.tid()
        rows(world, lane, data)

    return constraint_rows


def unsupported(m: Any, d: Any) -> str | None:
    """Say why a model keeps MuJoCo Warp's `make_constraint`, or None."""
    reason = newton.unsupported(m, d)
    if reason is not None:
        return reason
    joints = int((m.dof_frictionloss.numpy() > 0).any(axis=0).sum()) + m.jnt_limited_slide_hinge_adr.size
    if m.neq or m.jnt_limited_ball_adr.size or joints > WARP:
        return f"the model has equalities, limits of ball joints, or more than {WARP} limits and frictions of joints"
    if m.ntendon and (m.tendon_frictionloss.numpy() > 0).any():
        return "the model has tendons with friction"
    if m.flg_adhesion or m.flg_surfacevel or m.opt.deterministic or m.opt.disableflags & _PARTS:
        return "the model has adhesion, moving surfaces, deterministic sums or disabled parts"
    return None


class Rows:
    """Makes the rows of every world, in place of `mujoco_warp.make_constraint`; for models that are not `unsupported`."""

    def __init__(self, m: Any, d: Any) -> None:
        frictions = np.flatnonzero((m.dof_frictionloss.numpy() > 0).any(axis=0)).astype(np.int32)
        self._friction_dof = wp.array(frictions, dtype=int)
        self._listed = wp.zeros((d.nworld, d.njmax), dtype=int)
        self._listed_count = wp.zeros(d.nworld, dtype=int)
        constants = {
            "NV": m.nv,
            "NV_PAD": m.nv_pad,
            "NJMAX": d.njmax,
            "FRICTIONS": len(frictions),
            "LIMITS": m.jnt_limited_slide_hinge_adr.size,
            "TENDONS": m.tendon_limited_adr.size,
            "ELLIPTIC": int(m.opt.cone == mjw.ConeType.ELLIPTIC),
            "REFSAFE": int(not m.opt.disableflags & DisableBit.REFSAFE),
            "MIN_IMP": f"{types.MJ_MINIMP}f",
            "MAX_IMP": f"{types.MJ_MAXIMP}f",
            "MIN_VALUE": f"{float(types.MJ_MINVAL)}f",
            "FRICTION_ROW": int(ConstraintType.FRICTION_DOF),
            "LIMIT_ROW": int(ConstraintType.LIMIT_JOINT),
            "TENDON_ROW": int(ConstraintType.LIMIT_TENDON),
            "FRICTIONLESS_ROW": int(ConstraintType.CONTACT_FRICTIONLESS),
            "PYRAMID_ROW": int(ConstraintType.CONTACT_PYRAMIDAL),
            "ELLIPTIC_ROW": int(ConstraintType.CONTACT_ELLIPTIC),
        }
        self._kernel = _kernel(tuple(constants.items()))

    def make(self, m: Any, d: Any) -> None:
        contact = d.contact
        wp.launch(
            _list_contacts,
            dim=d.naconmax,
            inputs=[d.nacon, contact.type, contact.worldid, contact.dist, contact.includemargin],
            outputs=[self._listed, self._listed_count],
        )
        data = Fields()
        data.timestep, data.impratio_invsqrt = m.opt.timestep, m.opt.impratio_invsqrt
        data.friction_dof, data.limited_joint, data.limited_tendon = self._friction_dof, m.jnt_limited_slide_hinge_adr, m.tendon_limited_adr
        data.listed, data.listed_count, data.contact_pos = self._listed, self._listed_count, contact.pos
        for names, owner in ((_MODEL, m), (_DATA, d), (_CONTACT, contact), (_ROWS, d.efc)):
            for name in names:
                setattr(data, name, getattr(owner, name))
        wp.launch_tiled(self._kernel, dim=d.nworld, inputs=[data], block_dim=WARP)
