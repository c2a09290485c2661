"""MuJoCo Warp's collision detection by pairs of shapes: boxes and capsules do not share a warp.

The stock pass puts all pairs that may touch into one list, so the 32 threads of a warp meet different shapes, run one
narrow-phase function after another, and take the registers of the largest. Here each pair of shapes has its own pass.
"""

from typing import Any

import mujoco_warp as mjw
import numpy as np
import warp as wp
from mujoco_warp._src.collision_driver import MJ_COLLISION_TABLE, CollisionType, create_collision_context
from mujoco_warp._src.types import BroadphaseType, DisableBit, GeomType


@wp.kernel(enable_backward=False)
def _keep_most(count: wp.array[int], most: wp.array[int]):
    most[0] = wp.max(most[0], count[0])


class Collision:
    """Finds the contacts of all worlds, in place of `mujoco_warp.collision`; for models that are not `unsupported`."""

    def __init__(self, m: Any) -> None:
        parts = _pairs(m)
        self._parts = [(kind, wp.array(at, dtype=wp.vec2i), wp.array(ids, dtype=wp.vec2i)) for kind, at, ids in parts]
        self._most = wp.zeros(1, dtype=int)

    def detect(self, m: Any, d: Any) -> None:
        context = create_collision_context(d.naconmax)
        everything = m.nxn_geom_pair_filtered, m.nxn_pairid_filtered
        d.nacon.zero_()
        self._most.zero_()
        for kind, pairs, ids in self._parts:
            m.nxn_geom_pair_filtered, m.nxn_pairid_filtered = pairs, ids
            d.ncollision.zero_()
            mjw.nxn_broadphase(m, d, context)
            mjw.primitive_narrowphase(m, d, context, [kind])
            wp.launch(_keep_most, dim=1, inputs=[d.ncollision], outputs=[self._most])
        wp.copy(d.ncollision, self._most)  # which tells whether a list overflowed
        m.nxn_geom_pair_filtered, m.nxn_pairid_filtered = everything


def unsupported(m: Any) -> str | None:
    """Say why a model keeps the stock pass, or None."""
    if m.opt.broadphase != BroadphaseType.NXN or m.opt.disableflags & (DisableBit.CONSTRAINT | DisableBit.CONTACT):
        return "collisions are sorted or disabled"
    if m.nflex or m.flg_surfacevel or m.callback.contactfilter or m.has_sdf_geom:
        return "the model has flex, moving surfaces, signed distance fields or a filter of contacts"
    kinds, boxes = [kind for kind, _, _ in _pairs(m)], (GeomType.BOX, GeomType.BOX)
    if boxes not in kinds:
        return "no boxes meet boxes, and without them separate passes are not faster"
    table = dict(MJ_COLLISION_TABLE)
    if m.opt.disableflags & DisableBit.NATIVECCD:
        table[boxes] = CollisionType.PRIMITIVE
    other = next((kind for kind in kinds if table.get(kind) != CollisionType.PRIMITIVE), None)
    return f"pairs of {other[0].name} and {other[1].name} have no closed form" if other else None


def _pairs(m: Any) -> list[tuple[tuple[GeomType, GeomType], np.ndarray, np.ndarray]]:
    """Two shapes, and the geoms and ids of the pairs that have them."""
    pairs, ids = m.nxn_geom_pair_filtered.numpy(), m.nxn_pairid_filtered.numpy()
    kinds = np.sort(m.geom_type.numpy()[pairs], axis=1)
    chosen = [(kind, (kinds == kind).all(1)) for kind in np.unique(kinds, axis=0)]
    return [((GeomType(int(kind[0])), GeomType(int(kind[1]))), pairs[at], ids[at]) for kind, at in chosen]
