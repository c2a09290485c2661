"""The visible parts of a MuJoCo model, as primitives on bodies, and the camera."""

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
GEOM_FIELDS = ("geom_size", "geom_pos", "geom_quat", "geom_rgba")
"""Fields of a model that may differ between simulations."""
CAMERA_NAME = "side"
"""Name of the preferred camera in our models."""


def shown_model(engine: Engine) -> mujoco.MjModel:
    """A copy of the model with the sizes, poses and colours of simulation 0."""
    model = engine.model.__copy__()
    for name in GEOM_FIELDS:
        getattr(model, name)[:] = engine.expand(name)[0].cpu().numpy()
    return model


def is_shown_by(model: mujoco.MjModel, engine: Engine) -> bool:
    """Whether a model has the sizes, poses and colours of simulation 0."""
    return all(np.array_equal(getattr(model, name), engine.expand(name)[0].cpu().numpy()) for name in GEOM_FIELDS)


def primitives(model: mujoco.MjModel) -> tuple[Geom, ...]:
    """All geoms and sites that MuJoCo's viewer would draw: those of the shown groups that are not transparent."""
    found = []
    for kind, count in (("geom", model.ngeom), ("site", model.nsite)):
        for one in map(getattr(model, kind), range(count)):
            material, rgba, type = int(one.matid[0]), one.rgba, int(one.type[0])
            # As in MuJoCo, a material's colour counts where the geom has the default one.
            if material >= 0 and np.allclose(rgba, DEFAULT_RGBA):
                rgba = model.mat_rgba[material]
            if one.group[0] >= SHOWN_GROUPS or rgba[3] == 0:
                continue
            if type not in GEOM_TYPES:
                raise UserError(
                    f"{kind} {one.name or one.id} is a mesh or a height field, and replays show primitives only; "
                    "record a video instead, with --format mp4"
                )
            size, pos, quat = map(_numbers, (one.size, one.pos, one.quat))
            found.append(Geom(GEOM_TYPES[type], size, _numbers(rgba), int(one.bodyid[0]), pos, quat))
    return tuple(found)


def camera(model: mujoco.MjModel, qpos: np.ndarray) -> Camera:
    """The model's camera in a state: its position, and the point it orbits around."""
    data = mujoco.MjData(model)
    data.qpos[:] = qpos
    mujoco.mj_forward(model, data)
    centre, extent = np.array(model.stat.center), float(model.stat.extent)
    view, follow = view_id(model), followed(model)
    if view < 0:
        eye = centre + extent * np.array([0.9, -1.6, 0.7])
        return Camera(_numbers(eye), _numbers(centre), float(model.vis.global_.fovy), follow)
    eye, forward = data.cam_xpos[view], -data.cam_xmat[view].reshape(3, 3)[:, 2]
    subject = centre if follow is None else data.xpos[follow]
    distance = max(float(forward @ (subject - eye)), 0.1 * extent)
    return Camera(_numbers(eye), _numbers(eye + distance * forward), float(model.cam_fovy[view]), follow)


def view_id(model: mujoco.MjModel) -> int:
    """Id of the camera to use; -1 for the free camera."""
    named = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_CAMERA, CAMERA_NAME)
    return named if named >= 0 or not model.ncam else 0


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
