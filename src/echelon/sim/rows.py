"""Constraint rows of a world in one kernel: friction and limits of joints, then contacts, for `echelon.sim.newton`.

MuJoCo Warp's `make_constraint` has a thread per row, each of which writes a whole row of the Jacobian and takes its
place by an atomic counter. Here 32 threads write the rows of one world; those of joints have one entry that is read.
"""

from typing import Any

import mujoco_warp as mjw
import numpy as np
import warp as wp
from mujoco_warp._src import types
from mujoco_warp._src.types import ConstraintType, ContactType, DisableBit

from echelon.sim import newton
from echelon.sim.kernel import WARP, Kernel, unknown

_PARTS = int(
    DisableBit.CONSTRAINT | DisableBit.EQUALITY | DisableBit.FRICTIONLOSS | DisableBit.LIMIT | DisableBit.CONTACT
)


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


def unsupported(m: Any, d: Any) -> str | None:
    """Say why a model keeps MuJoCo Warp's `make_constraint`, or None."""
    if reason := newton.unsupported(m, d) or unknown(m, d, "rows"):
        return reason
    if m.neq or m.jnt_limited_ball_adr.size:
        return "the model has equalities or limits of ball joints"
    if m.ntendon and (m.tendon_frictionloss.numpy() > 0).any():
        return "the model has tendons with friction"
    if m.flg_adhesion or m.flg_surfacevel or m.opt.deterministic or m.opt.disableflags & _PARTS:
        return "the model has adhesion, moving surfaces, deterministic sums or disabled parts"
    return None


class Rows:
    """Makes the rows of every world, in place of `make_constraint`, for models that are not `unsupported`."""

    def __init__(self, m: Any, d: Any) -> None:
        frictions = np.flatnonzero((m.dof_frictionloss.numpy() > 0).any(axis=0)).astype(np.int32)
        self._tables = {
            "friction_dof": wp.array(frictions, dtype=int),
            "listed": wp.zeros((d.nworld, d.njmax), dtype=int),
            "listed_count": wp.zeros(d.nworld, dtype=int),
        }
        sizes = {
            "NV": m.nv,
            "NV_PAD": m.nv_pad,
            "COLUMNS": -(-m.nv // WARP),
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
        self._kernel = Kernel("rows", sizes, m, d, self._tables)

    def make(self, m: Any, d: Any) -> None:
        contact = d.contact
        wp.launch(
            _list_contacts,
            dim=d.naconmax,
            inputs=[d.nacon, contact.type, contact.worldid, contact.dist, contact.includemargin],
            outputs=[self._tables["listed"], self._tables["listed_count"]],
        )
        self._kernel.launch()
