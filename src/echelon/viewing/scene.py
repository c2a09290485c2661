"""The visible parts of a MuJoCo model, as primitives on bodies, and the camera."""

from dataclasses import dataclass

import mujoco
import numpy as np

from echelon.errors import UserError
from echelon.runs.replays import Camera, Geom
from echelon.sim.contract import Engine

GEOM_TYPES = {
    int(getattr(mujoco.mjtGeom, f"mjGEOM_{name.upper()}")): name
    for name in ("plane", "sphere", "capsule", "ellipsoid", "cylinder", "box")
}
SHOWN_GROUPS = 3
"""MuJoCo's viewers show groups 0, 1 and 2 by default; collision shapes are usually in 3."""
DEFAULT_RGBA = np.array([0.5, 0.5, 0.5, 1.0])
"""MuJoCo's default colour: a geom that has it takes its material's colour."""
GEOM_FIELDS = ("size", "pos", "quat", "rgba")
"""Fields `geom_...` of a model that may differ between simulations."""
CAMERA_NAME = "side"
"""Name of the preferred camera in our models."""


@dataclass(frozen=True)
class Appearance:
    """Sizes, poses and colours of one simulation's geoms, which may differ from the model's: `[geoms, ...]` each."""

    size: np.ndarray
    pos: np.ndarray
    quat: np.ndarray
    rgba: np.ndarray

    @staticmethod
    def of(engine: Engine, sim: int = 0) -> "Appearance":
        """The current appearance of simulation `sim`."""
        fields = (engine.expand(f"geom_{name}")[sim] for name in GEOM_FIELDS)
        return Appearance(*(field.double().cpu().numpy().copy() for field in fields))

    def same(self, other: "Appearance") -> bool:
        """Whether all fields are equal."""
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in GEOM_FIELDS)

    def put_into(self, model: mujoco.MjModel) -> None:
        """Copy the fields into a model."""
        for name in GEOM_FIELDS:
            getattr(model, f"geom_{name}")[:] = getattr(self, name)


def primitives(model: mujoco.MjModel, appearance: Appearance) -> tuple[Geom, ...]:
    """All geoms and sites that MuJoCo's viewer would draw: of the shown groups, and not transparent."""
    found = []
    sites = Appearance(model.site_size, model.site_pos, model.site_quat, model.site_rgba)
    for kind, these in (("geom", appearance), ("site", sites)):
        type, group, body, material = (
            getattr(model, f"{kind}_{name}") for name in ("type", "group", "bodyid", "matid")
        )
        for i, rgba in enumerate(these.rgba):
            # As in MuJoCo, a material's colour counts where the geom has the default one.
            if material[i] >= 0 and np.allclose(rgba, DEFAULT_RGBA):
                rgba = model.mat_rgba[material[i]]
            if group[i] >= SHOWN_GROUPS or rgba[3] == 0:
                continue
            if int(type[i]) not in GEOM_TYPES:
                raise UserError(
                    f"{kind} {getattr(model, kind)(i).name or i} is a mesh or a height field, and replays show "
                    "primitives only; record a video instead, with --format mp4"
                )
            size, pos, quat = (_numbers(column[i]) for column in (these.size, these.pos, these.quat))
            found.append(Geom(GEOM_TYPES[int(type[i])], size, _numbers(rgba), int(body[i]), pos, quat))
    return tuple(found)


def camera(model: mujoco.MjModel, qpos: np.ndarray) -> Camera:
    """The model's camera in a state: its position, and the point it orbits around."""
    data = mujoco.MjData(model)
    data.qpos[:] = qpos
    mujoco.mj_forward(model, data)
    centre, extent = np.array(model.stat.center), float(model.stat.extent)
    view = view_id(model)
    if view < 0:
        eye = centre + extent * np.array([0.9, -1.6, 0.7])
        return Camera(_numbers(eye), _numbers(centre), float(model.vis.global_.fovy), followed(model))
    eye, forward = data.cam_xpos[view], -data.cam_xmat[view].reshape(3, 3)[:, 2]
    follow = followed(model)
    subject = centre if follow is None else data.xpos[follow]
    distance = max(float(forward @ (subject - eye)), 0.1 * extent)
    return Camera(_numbers(eye), _numbers(eye + distance * forward), float(model.cam_fovy[view]), follow)


def view_id(model: mujoco.MjModel) -> int:
    """Id of the camera to use; -1 for the free camera."""
    named = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_CAMERA, CAMERA_NAME)
    return named if named >= 0 or not model.ncam else 0


def body_names(model: mujoco.MjModel) -> tuple[str, ...]:
    """Names of all bodies, in the order of their ids."""
    return tuple(model.body(i).name or f"body {i}" for i in range(model.nbody))


def followed(model: mujoco.MjModel) -> int | None:
    """The body that the camera follows; in a model without a camera, the first one if it has a free joint."""
    view = view_id(model)
    if view >= 0:
        tracks = int(model.cam_mode[view]) != int(mujoco.mjtCamLight.mjCAMLIGHT_FIXED)
        return int(model.cam_bodyid[view]) if tracks else None
    free = int(mujoco.mjtJoint.mjJNT_FREE)
    return int(model.jnt_bodyid[0]) if model.njnt and int(model.jnt_type[0]) == free else None


def _numbers(values: np.ndarray) -> tuple[float, ...]:
    return tuple(map(float, values))
