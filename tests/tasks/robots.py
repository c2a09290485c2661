"""Robots by their fact tables, and what tests ask of compiled models.

A table lies beside the tests of its task: JSON with rows of

* `bodies`: parent, position in it [m], quaternion w x y z, mass [kg], centre, Ixx Iyy Izz (Ixy Ixz Iyz) or null;
* `joints`, in the model's order: body, axis, anchor [m], range [rad], damping, armature, stiffness, friction (or null);
* `servos`, in the order of actions: gear, gain, three of bias, range of controls, range of forces (or null);
* `points`: the body it lies on, and where; of a `body` or `frame` (a site) the axes are the body's too.

The `tolerances` of `axes` in the Shadow hand's: a frame that is off by this much moves a point 0.1 m away by 0.1 mm.
"""

import json
import math
from collections.abc import Callable, Mapping
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import scenes

from echelon.tasks.allegro_kuka.scene import build

TABLES = {path.stem: json.loads(path.read_text()) for path in sorted(Path(__file__).parent.glob("*/*.json"))}
Vector = tuple[float, ...]


@cache
def load(name: str) -> mujoco.MjModel:
    return build(f"{name}.xml") if name.startswith("kuka") else scenes.load(name)


def limits(name: str) -> np.ndarray:
    """`[J, 2]`: ranges of the joints, by the table."""
    return np.array([row[3] for row in TABLES[name]["joints"].values()])


def turn(axis: Vector, angle: float) -> np.ndarray:
    """`[4, 4]`: Rodrigues' rotation about an axis."""
    x, y, z = np.array(axis) / np.linalg.norm(axis)
    cross, matrix = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]]), np.eye(4)
    matrix[:3, :3] += np.sin(angle) * cross + (1 - np.cos(angle)) * cross @ cross
    return matrix


def moved(position: Vector) -> np.ndarray:
    matrix = np.eye(4)
    matrix[:3, 3] = position
    return matrix


def placed(position: Vector, quat: Vector) -> np.ndarray:
    """`[4, 4]`: parent from child, by a quaternion w x y z."""
    w, *axis = quat
    return moved(position) @ (turn(tuple(axis), 2 * math.atan2(math.hypot(*axis), w)) if any(axis) else np.eye(4))


def frame_of(name: str, body: str, angles: Mapping[str, float]) -> np.ndarray:
    """`[4, 4]`: the body's frame in that of the robot's first body, by the table."""
    table = TABLES[name]
    parent, position, quat, *_ = table["bodies"][body]
    matrix = (np.eye(4) if parent is None else frame_of(name, parent, angles)) @ placed(position, quat)
    for joint, (owner, axis, anchor, *_) in table["joints"].items():
        if owner == body and "finger_joint" in joint:  # slides
            matrix = matrix @ moved(tuple(angles[joint] * np.array(axis)))
        elif owner == body:
            matrix = matrix @ moved(anchor) @ turn(axis, angles[joint]) @ moved(tuple(-np.array(anchor)))
    return matrix


def inertia(xx: float, yy: float, zz: float, xy: float = 0.0, xz: float = 0.0, yz: float = 0.0) -> np.ndarray:
    """`[3, 3]`: a table's moments and products."""
    return np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])


def inertia_of(model: mujoco.MjModel, name: str) -> np.ndarray:
    """`[3, 3]`: about the body's centre of mass, in the body's frame. MuJoCo keeps it by its principal axes."""
    body, frame = model.body(name), np.zeros(9)
    mujoco.mju_quat2Mat(frame, body.iquat)
    axes = frame.reshape(3, 3)
    return axes @ np.diag(body.inertia) @ axes.T


def step(model: mujoco.MjModel, data: mujoco.MjData, steps: int) -> None:
    for _ in range(steps):
        mujoco.mj_step(model, data)


def posed(model: mujoco.MjModel, pose: Any, first: int = 0) -> mujoco.MjData:
    """A state with these coordinates, from the given one on, at rest."""
    data = mujoco.MjData(model)
    data.qpos[first:][: len(pose)] = pose
    mujoco.mj_forward(model, data)
    return data


def touching(model: mujoco.MjModel, kind: Callable[[str], str] = str) -> set[frozenset[str]]:
    """Kinds of geoms that meet by their contact bits; two that stand still never do."""
    geoms, still = [model.geom(i) for i in range(model.ngeom)], model.body_weldid == 0
    return {
        frozenset((kind(one.name), kind(two.name)))
        for one, two in combinations(geoms, 2)
        if ((one.contype[0] & two.conaffinity[0]) or (two.contype[0] & one.conaffinity[0]))
        and not (still[one.bodyid[0]] and still[two.bodyid[0]])
    }


def pairs(*names: str) -> set[frozenset[str]]:
    """`pairs("hand, table")`."""
    return {frozenset(name.split(", ")) for name in names}
