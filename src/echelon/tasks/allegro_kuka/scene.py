"""The scenes: arms at a table, an object, and a marker of the goal."""

import math
from dataclasses import dataclass
from typing import Any, Literal

import mujoco
import numpy as np

from echelon.tasks.allegro_kuka.robot import kuka_allegro, read

TABLE_TOP = 0.53
"""Height of the table, in metres."""
HARDNESS = (0.95, 0.99)
"""First numbers of every contact's `solimp`. With MuJoCo's default objects slip out of the hand, with more some fly."""
SUBSTEPS = 2
"""Physics steps per control step of 1/60 s."""
WALLS = 8
"""Sides of the bucket. The reference has twelve; eight make fewer simultaneous contacts."""
BUCKET_HEIGHT, FLOOR_RADIUS, RIM_RADIUS, THICKNESS = 0.198, 0.0705, 0.103, 0.01
"""Inner radii at the floor and at the rim, in metres."""

STAVES = 24
"""Boards of the bucket that are seen, narrower than the walls that touch."""
OTHER_ARM = 8
"""Contact bit of hands and wrists, with two arms."""

Place = tuple[float, float, float]


@dataclass(frozen=True)
class Volume:
    """A region to draw positions from: uniform between `low` and `high`, then moved by ±`side` along x, in metres."""

    low: Place
    high: Place
    side: float = 0.0


@dataclass(frozen=True)
class Workplace:
    """What differs between the scenes."""

    bases: tuple[tuple[Place, float], ...]
    """Position [m] and yaw [rad] of each arm."""
    arm_pose: tuple[float, ...]
    """The seven default angles of an arm at the start, in radians."""
    table_width: float
    """Along x, in metres."""
    object_starts: Volume
    goals: Volume
    marker: Literal["ball", "box", "bucket"]
    """Marker of the goal: of a point, of a pose, or a bucket."""
    camera: tuple[Place, Place]
    """Position of the camera, and the point it looks at."""


ONE_ARM = Workplace(
    bases=(((0.0, 0.8, 0.0), 0.0),),
    arm_pose=(-1.571, 1.571, 0.0, 1.376, 0.0, 1.485, 2.358),
    table_width=0.475,
    object_starts=Volume((-0.1, -0.1, 0.61), (0.1, 0.1, 0.65)),
    goals=Volume((-0.4, 0.0, 0.68), (0.4, 0.35, 1.05)),
    marker="box",
    camera=((1.5, -1.1, 1.3), (0.0, 0.3, 0.7)),
)
TWO_ARMS = Workplace(
    bases=(((-1.1, 0.0, 0.0), math.pi / 2), ((1.1, 0.0, 0.0), -math.pi / 2)),
    arm_pose=(-1.571, 1.571, 0.0, 1.6, 0.0, 1.485, 2.358),
    table_width=1.1,
    object_starts=Volume((-0.1, -0.1, 0.61), (0.1, 0.1, 0.65), side=0.35),
    goals=Volume((-0.2, -0.5, 0.68), (0.2, 0.5, 1.05), side=0.75),
    marker="box",
    camera=((0.5, -3.7, 1.75), (0.0, 0.0, 0.72)),
)


def arm_prefix(arm: int) -> str:
    """Prefix of all names of an arm."""
    return f"arm{arm}/"


def build(place: Workplace) -> mujoco.MjModel:
    """Build the scene. The object's coordinates come first, then those of each arm."""
    spec = read("kuka_table.xml")
    spec.geom("table").size[0] = 0.5 * place.table_width
    middle = [0.5 * (low + high) for low, high in zip(place.goals.low, place.goals.high, strict=True)]
    goal = spec.worldbody.add_body(name="goal", mocap=True, pos=(middle[0] + place.goals.side, *middle[1:]))
    _add_bucket(spec, goal) if place.marker == "bucket" else _add_marker(spec, goal, place.marker)
    for arm, (position, yaw) in enumerate(place.bases):
        orientation = (math.cos(0.5 * yaw), 0.0, 0.0, math.sin(0.5 * yaw))
        spec.attach(
            kuka_allegro(), prefix=arm_prefix(arm), frame=spec.worldbody.add_frame(pos=position, quat=orientation)
        )
    for geom in spec.geoms:
        geom.solimp[:2] = HARDNESS
    if len(place.bases) == 2:
        _separate_arms(spec)
    _add_camera(spec, *place.camera)
    return spec.compile()


def _separate_arms(spec: Any) -> None:
    """Hands and wrists of the first arm meet those of the second."""
    for geom in spec.geoms:
        if geom.name.startswith(arm_prefix(0)) and geom.contype:
            geom.contype |= OTHER_ARM
        elif geom.name.startswith(arm_prefix(1)) and geom.contype:
            geom.conaffinity |= OTHER_ARM


def _add_marker(spec: Any, goal: Any, shape: Literal["ball", "box"]) -> None:
    """Add a ball or a copy of the object, without collisions."""
    kind = mujoco.mjtGeom.mjGEOM_SPHERE if shape == "ball" else mujoco.mjtGeom.mjGEOM_BOX
    size = (0.01875, 0.0, 0.0) if shape == "ball" else (0.025, 0.025, 0.025)
    goal.add_geom(spec.find_default("seen"), name="goal", type=kind, size=size, material="goal")


def _add_bucket(spec: Any, goal: Any) -> None:
    """Add a bucket of a floor and tapered walls; its origin is the centre of the underside."""
    touch, seen = spec.find_default("bucket"), spec.find_default("seen")
    half = 0.5 * THICKNESS
    goal.add_geom(touch, name="bucket_floor", size=(FLOOR_RADIUS, FLOOR_RADIUS, half), pos=(0.0, 0.0, half))
    _add_walls(goal, touch, "bucket_wall", WALLS)
    disc = mujoco.mjtGeom.mjGEOM_CYLINDER
    goal.add_geom(seen, type=disc, size=(FLOOR_RADIUS, half, 0.0), pos=(0.0, 0.0, half), material="bucket")
    _add_walls(goal, seen, "bucket_stave", STAVES, type=mujoco.mjtGeom.mjGEOM_BOX, material="bucket")


def _add_walls(goal: Any, style: Any, name: str, count: int, **look: Any) -> None:
    """Add boxes around the bucket, each wide enough to close it at the rim."""
    lean = math.atan2(RIM_RADIUS - FLOOR_RADIUS, BUCKET_HEIGHT - THICKNESS)
    radius = 0.5 * (FLOOR_RADIUS + RIM_RADIUS + THICKNESS)
    width = (RIM_RADIUS + THICKNESS) * math.tan(math.pi / count)
    for wall in range(count):
        angle = 2.0 * math.pi * wall / count
        about_z = (math.cos(0.5 * angle), 0.0, 0.0, math.sin(0.5 * angle))
        about_y = (math.cos(0.5 * lean), 0.0, math.sin(0.5 * lean), 0.0)
        quat = np.zeros(4)
        mujoco.mju_mulQuat(quat, np.array(about_z), np.array(about_y))
        goal.add_geom(
            style,
            name=f"{name}_{wall}",
            size=(0.5 * THICKNESS, width, 0.5 * BUCKET_HEIGHT / math.cos(lean)),
            pos=(radius * math.cos(angle), radius * math.sin(angle), 0.5 * BUCKET_HEIGHT),
            quat=quat,
            **look,
        )


def _add_camera(spec: Any, place: Place, centre: Place) -> None:
    """Add the camera `side`, upright: x to the right, z away from `centre`."""
    back = np.subtract(place, centre)
    right = np.array((-back[1], back[0], 0.0))
    axes = np.stack([axis / np.linalg.norm(axis) for axis in (right, np.cross(back, right), back)], axis=1)
    quat = np.zeros(4)
    mujoco.mju_mat2Quat(quat, axes.ravel())
    spec.worldbody.add_camera(name="side", pos=place, quat=quat, fovy=35.0)
