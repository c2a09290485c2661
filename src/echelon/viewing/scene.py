"""What is to be seen of a MuJoCo model: primitives on bodies, and where to look from."""

from dataclasses import dataclass

import mujoco
import numpy as np

from echelon.errors import UserError
from echelon.runs.replays import Camera, Geom
from echelon.sim.contract import Engine

KINDS = {
    int(getattr(mujoco.mjtGeom, f"mjGEOM_{name.upper()}")): name
    for name in ("plane", "sphere", "capsule", "ellipsoid", "cylinder", "box")
}
SHOWN_GROUPS = 3
"""MuJoCo's viewers show groups 0, 1 and 2 unless asked for more; collision shapes are usually in 3."""
UNSET = np.array([0.5, 0.5, 0.5, 1.0])
"""A geom of this colour was given none, and takes its material's."""
FIELDS = ("size", "pos", "quat", "rgba")
"""What an environment may have its own of, each `geom_...` of a model."""
VIEW = "side"
"""The camera that shows a scene best, by the custom of our models."""


@dataclass(frozen=True)
class Looks:
    """The geoms of one simulation, which may differ from the model's: `[geoms, ...]` each."""

    size: np.ndarray
    pos: np.ndarray
    quat: np.ndarray
    rgba: np.ndarray

    @staticmethod
    def of(engine: Engine, sim: int = 0) -> "Looks":
        """As they are now."""
        fields = (engine.expand(f"geom_{name}")[sim] for name in FIELDS)
        return Looks(*(field.double().cpu().numpy().copy() for field in fields))

    def same(self, other: "Looks") -> bool:
        """Whether nothing differs to the eye."""
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in FIELDS)

    def put_into(self, model: mujoco.MjModel) -> None:
        """Make the model's geoms look like these."""
        for name in FIELDS:
            getattr(model, f"geom_{name}")[:] = getattr(self, name)


def primitives(model: mujoco.MjModel, looks: Looks) -> tuple[Geom, ...]:
    """Everything MuJoCo's viewer would draw: geoms and sites of the shown groups that are not transparent."""
    found = []
    for i in range(model.ngeom):
        rgba = _colour(model, looks.rgba[i], int(model.geom_matid[i]))
        if model.geom_group[i] < SHOWN_GROUPS and rgba[3] > 0:
            found.append(
                Geom(
                    type=_kind(model, i),
                    size=_numbers(looks.size[i]),
                    rgba=_numbers(rgba),
                    body=int(model.geom_bodyid[i]),
                    pos=_numbers(looks.pos[i]),
                    quat=_numbers(looks.quat[i]),
                )
            )
    for i in range(model.nsite):
        rgba = _colour(model, model.site_rgba[i], int(model.site_matid[i]))
        if model.site_group[i] < SHOWN_GROUPS and rgba[3] > 0 and int(model.site_type[i]) in KINDS:
            found.append(
                Geom(
                    type=KINDS[int(model.site_type[i])],
                    size=_numbers(model.site_size[i]),
                    rgba=_numbers(rgba),
                    body=int(model.site_bodyid[i]),
                    pos=_numbers(model.site_pos[i]),
                    quat=_numbers(model.site_quat[i]),
                )
            )
    return tuple(found)


def camera(model: mujoco.MjModel, qpos: np.ndarray) -> Camera:
    """The model's own view of a state, as an eye and the point it turns around."""
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
    """The camera to look through; -1 for the free one."""
    named = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_CAMERA, VIEW)
    return named if named >= 0 or not model.ncam else 0


def body_names(model: mujoco.MjModel) -> tuple[str, ...]:
    """Names in the order of their ids."""
    return tuple(model.body(i).name or f"body {i}" for i in range(model.nbody))


def followed(model: mujoco.MjModel) -> int | None:
    """The body that the camera goes along with; in a model without a camera the first one, if it is free to leave."""
    view = view_id(model)
    if view >= 0:
        tracks = int(model.cam_mode[view]) != int(mujoco.mjtCamLight.mjCAMLIGHT_FIXED)
        return int(model.cam_bodyid[view]) if tracks else None
    free = int(mujoco.mjtJoint.mjJNT_FREE)
    return int(model.jnt_bodyid[0]) if model.njnt and int(model.jnt_type[0]) == free else None


def _kind(model: mujoco.MjModel, geom: int) -> str:
    kind = KINDS.get(int(model.geom_type[geom]))
    if kind is None:
        raise UserError(
            f"geom {model.geom(geom).name or geom} is a mesh or a height field, and replays show primitives only; "
            "record a video instead, with --format mp4"
        )
    return kind


def _colour(model: mujoco.MjModel, rgba: np.ndarray, material: int) -> np.ndarray:
    """A geom's own colour goes before its material's, as in MuJoCo."""
    return model.mat_rgba[material] if material >= 0 and np.allclose(rgba, UNSET) else rgba


def _numbers(values: np.ndarray) -> tuple[float, ...]:
    return tuple(map(float, values))
