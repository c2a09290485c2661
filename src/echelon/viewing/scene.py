"""The visible parts of a MuJoCo model, as primitives and meshes on bodies, and the camera."""

import math
import re
from collections.abc import Iterable
from typing import Any

import mujoco
import numpy as np

from echelon.runs.replays import Camera, Geom, Mesh, Vector
from echelon.sim.contract import Engine

GEOM_TYPES = {
    int(getattr(mujoco.mjtGeom, f"mjGEOM_{name.upper()}")): name
    for name in ("plane", "hfield", "sphere", "capsule", "ellipsoid", "cylinder", "box", "mesh", "sdf")
}
SHOWN_GROUPS = 3
"""MuJoCo's viewers show groups 0, 1 and 2 by default; collision shapes are usually in 3."""
DEFAULT_RGBA = np.array([0.5, 0.5, 0.5, 1.0])
"""MuJoCo's default colour: a geom that has it takes its material's colour."""
GEOM_FIELDS = ("geom_size", "geom_pos", "geom_quat", "geom_rgba")
"""Fields of a model that may differ between simulations."""
CAMERA_NAME = "side"
"""Name of the preferred camera in our models."""
SUBJECT_EXTENT = 4.0
"""Width of the view in radii of what is to be seen, where the whole model is wider."""
GOAL = re.compile("goal|target", re.IGNORECASE)
"""In the name of a geom, a site or its body: it marks a goal."""


def shown_model(engine: Engine) -> mujoco.MjModel:
    """A copy of the model with the sizes, poses and colours of simulation 0."""
    model = engine.model.__copy__()
    for name in GEOM_FIELDS:
        getattr(model, name)[:] = engine.expand(name)[0].cpu().numpy()
    return model


def is_shown_by(model: mujoco.MjModel, engine: Engine) -> bool:
    """Whether a model has the sizes, poses and colours of simulation 0."""
    return all(np.array_equal(getattr(model, name), engine.expand(name)[0].cpu().numpy()) for name in GEOM_FIELDS)


def geoms(model: mujoco.MjModel) -> tuple[Geom, ...]:
    """All geoms and sites that MuJoCo's viewer would draw: those of the shown groups that are not transparent."""
    found = []
    for kind, count in (("geom", model.ngeom), ("site", model.nsite)):
        for one in map(getattr(model, kind), range(count)):
            type, rgba = GEOM_TYPES[int(one.type[0])], _rgba(model, one)
            if one.group[0] >= SHOWN_GROUPS or rgba[3] == 0:
                continue
            if type in ("mesh", "sdf", "hfield"):
                type = f"{'hfield' if type == 'hfield' else 'mesh'} {one.dataid[0]}"
            body, pos, quat = _place(model, one, type == "plane" and not one.size[:2].all())
            found.append(Geom(type, _numbers(one.size), _numbers(rgba), body, pos, quat, _is_goal(model, one)))
    return tuple(found)


def _place(model: mujoco.MjModel, one: mujoco.MjModel, endless: bool) -> tuple[int, Vector, Vector]:
    """The body of a geom or site, and its pose there. The ground, a plane without end, is the world's: a page draws no
    other, and mjlab has it on a body of its own, which is fixed, as MuJoCo demands."""
    body, pos, quat = int(one.bodyid[0]), one.pos, one.quat
    if endless:
        data = mujoco.MjData(model)
        mujoco.mj_kinematics(model, data)
        body, pos, quat = 0, data.geom_xpos[one.id], np.empty(4)
        mujoco.mju_mat2Quat(quat, data.geom_xmat[one.id])
    return body, _numbers(pos), _numbers(quat)


def _rgba(model: mujoco.MjModel, one: mujoco.MjModel) -> np.ndarray:
    """The colour of a geom or site; a texture counts by its mean."""
    material, rgba = int(one.matid[0]), one.rgba
    if material < 0:
        return rgba
    if np.allclose(rgba, DEFAULT_RGBA):  # as in MuJoCo, a material's colour counts where the geom has the default one
        rgba = model.mat_rgba[material]
    texture = model.mat_texid[material, int(mujoco.mjtTextureRole.mjTEXROLE_RGB)]
    if texture < 0:
        return rgba
    channels, start = model.tex_nchannel[texture], model.tex_adr[texture]
    pixels = model.tex_data[start : start + model.tex_height[texture] * model.tex_width[texture] * channels]
    return rgba * np.append(pixels.reshape(-1, channels)[:, :3].mean(axis=0) / 255, 1.0)


def meshes(model: mujoco.MjModel, shown: Iterable[Geom]) -> dict[str, Mesh]:
    """The meshes and height fields that geoms show, by the geoms' types."""
    types = sorted({geom.type for geom in shown if " " in geom.type})
    return {type: (_mesh if type[0] == "m" else _height_field)(model, int(type.split()[1])) for type in types}


def _mesh(model: mujoco.MjModel, number: int) -> Mesh:
    vertices = model.mesh_vert[model.mesh_vertadr[number] :][: model.mesh_vertnum[number]]
    return Mesh(vertices, model.mesh_face[model.mesh_faceadr[number] :][: model.mesh_facenum[number]])


def _height_field(model: mujoco.MjModel, number: int) -> Mesh:
    """Two triangles per cell; rows are along y."""
    rows, columns = int(model.hfield_nrow[number]), int(model.hfield_ncol[number])
    heights = model.hfield_data[model.hfield_adr[number] :][: rows * columns]
    reach_x, reach_y, top, _ = model.hfield_size[number]
    x, y = np.meshgrid(np.linspace(-reach_x, reach_x, columns), np.linspace(-reach_y, reach_y, rows))
    place = np.arange(rows * columns).reshape(rows, columns)
    a, b, c, d = (part.ravel() for part in (place[:-1, :-1], place[:-1, 1:], place[1:, 1:], place[1:, :-1]))
    faces = np.stack((a, b, c, a, c, d), axis=1).reshape(-1, 3)
    return Mesh(np.stack((x.ravel(), y.ravel(), top * heights), axis=1), faces)


def camera(model: mujoco.MjModel, qpos: np.ndarray) -> Camera:
    """The model's camera in a state: its position, and the point it orbits around."""
    data = mujoco.MjData(model)
    data.qpos[:] = qpos
    mujoco.mj_forward(model, data)
    view, follow = view_id(model), followed(model)
    subject, extent = np.array(model.stat.center), float(model.stat.extent)
    middle, radius = _subject(model, data, follow)
    if 0 < SUBJECT_EXTENT * radius < extent:  # on wide ground the extent is the ground's, and a robot would be a speck
        subject, extent = middle, SUBJECT_EXTENT * radius
    if follow is not None:
        subject = data.xpos[follow]
    if view < 0:
        eye = subject + extent * np.array([0.6, -1.1, 0.5])
        return Camera(_numbers(eye), _numbers(subject), float(model.vis.global_.fovy), follow)
    eye, forward = data.cam_xpos[view], -data.cam_xmat[view].reshape(3, 3)[:, 2]
    distance = max(float(forward @ (subject - eye)), 0.1 * extent)
    return Camera(_numbers(eye), _numbers(eye + distance * forward), float(model.cam_fovy[view]), follow)


def _subject(model: mujoco.MjModel, data: mujoco.MjData, follow: int | None) -> tuple[np.ndarray, float]:
    """Middle and radius of what is to be seen: the mechanism of the followed body, or else all that can move. Goals
    have to be within two radii, for then they are in the picture."""
    root = model.body_rootid
    bodies = model.body_weldid != 0 if follow is None else root == root[follow]
    seen = bodies[model.geom_bodyid]
    if not seen.any():
        return np.zeros(3), 0.0
    places, radii = data.geom_xpos[seen], model.geom_rbound[seen, None]
    low, high = (places - radii).min(axis=0), (places + radii).max(axis=0)
    middle, radius = (low + high) / 2, (high - low).max() / 2
    marks = [data.geom(k).xpos for k in range(model.ngeom) if _is_goal(model, model.geom(k))]
    marks += [data.site(k).xpos for k in range(model.nsite) if _is_goal(model, model.site(k))]
    return middle, float(max(radius, *(np.linalg.norm(mark - middle) / 2 for mark in marks), 0.0))


def _is_goal(model: mujoco.MjModel, one: mujoco.MjModel) -> bool:
    """Whether a geom or a site marks a goal."""
    return bool(GOAL.search(f"{one.name} {model.body(int(one.bodyid[0])).name}"))


def free_view(view: Camera) -> dict[str, Any]:
    """The view in the terms of MuJoCo's free and tracking cameras."""
    forward = np.subtract(view.target, view.eye)
    distance = float(np.linalg.norm(forward))
    return {
        "lookat": view.target,
        "distance": distance,
        "azimuth": math.degrees(math.atan2(forward[1], forward[0])),
        "elevation": math.degrees(math.asin(forward[2] / distance)),
    }


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
