"""Robots against their fact tables: kinematics computed a second time, masses, inertias, joints, servos.

A table lies beside the tests of its task. Rows of

* `bodies`: parent, position in it [m], quaternion w x y z, mass [kg], centre, Ixx Iyy Izz (Ixy Ixz Iyz) or null;
* `joints`, in the model's order: body, axis, anchor [m], range [rad], damping, armature, stiffness, friction (or null);
* `servos`, in the order of actions: gear, gain, three of bias, range of controls, range of forces (or null);
* `points`: the body it lies on, and where; of a `body` or `frame` (a site) the axes are the body's too.
"""

import json
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
import scenes
from tasks.frames import inertia, inertia_of, moved, placed_by_quat, turn

from echelon.tasks.allegro_kuka.scene import build

FREE, SLIDE = int(mujoco.mjtJoint.mjJNT_FREE), int(mujoco.mjtJoint.mjJNT_SLIDE)
TABLES = {
    "allegro_hand": "in_hand/allegro_facts.json",
    "anymal": "anymal/facts.json",
    "humanoid": "humanoid/facts.json",
    "kuka_allegro": "allegro_kuka/facts.json",
    "panda": "franka_cube/facts.json",
    "shadow_hand": "in_hand/shadow_facts.json",
}
EXACT = {"mass": 1e-5, "centre": 1e-9, "moment": 1e-8, "moment_rel": 0.0, "axes": 1e-4}
TOLERANCES = {
    "allegro_hand": EXACT | {"mass": 1e-12},
    "anymal": EXACT,
    "humanoid": EXACT | {"mass": 1e-3, "centre": 1e-5, "moment": 6e-6},
    "kuka_allegro": EXACT | {"mass": 1e-12, "moment": 1e-12, "moment_rel": 1e-6},
    "panda": EXACT,
    # A frame that is off by this much moves a point 0.1 m away by 0.1 mm.
    "shadow_hand": {"mass": 1e-3, "centre": 1e-4, "moment": 1e-10, "moment_rel": 2e-3, "axes": 1e-3},
}
Robot = tuple[mujoco.MjModel, dict[str, Any], dict[str, float]]


@pytest.fixture(scope="module", params=TABLES)
def robot(request: pytest.FixtureRequest) -> Robot:
    name = request.param
    model = build("kuka_allegro.xml") if name == "kuka_allegro" else scenes.load(name)
    return model, json.loads((Path(__file__).parent / TABLES[name]).read_text()), TOLERANCES[name]


def frame_of(body: str, facts: dict[str, Any], model: mujoco.MjModel, angles: dict[str, float]) -> np.ndarray:
    """`[4, 4]`: the body's frame in that of the robot's first body, by the table."""
    parent, position, quat, *_ = facts["bodies"][body]
    matrix = (np.eye(4) if parent is None else frame_of(parent, facts, model, angles)) @ placed_by_quat(position, quat)
    for name, (owner, axis, anchor, *_) in facts["joints"].items():
        if owner == body and model.joint(name).type[0] == SLIDE:
            matrix = matrix @ moved(tuple(angles[name] * np.array(axis)))
        elif owner == body:
            matrix = matrix @ moved(anchor) @ turn(axis, angles[name]) @ moved(tuple(-np.array(anchor)))
    return matrix


def test_points_are_where_the_table_puts_them(robot: Robot) -> None:
    """With all joints at zero, at either end of their ranges, and in seven random poses; to 0.1 mm."""
    model, facts, tolerance = robot
    low, high = np.array([row[3] for row in facts["joints"].values()]).clip(-np.pi, np.pi).T
    random = np.random.default_rng(1).uniform(low, high, (7, len(low)))
    for pose in (np.zeros(len(low)), low, high, *random):
        data, angles = mujoco.MjData(model), dict(zip(facts["joints"], pose, strict=True))
        for name, angle in angles.items():
            data.joint(name).qpos = angle
        mujoco.mj_forward(model, data)
        base = data.qpos[:3] if model.jnt_type[0] == FREE else np.zeros(3)
        for name, (body, point) in facts["points"].items():
            kind, _, thing = name.partition(" ")
            matrix, found = frame_of(body, facts, model, angles), getattr(data, kind.replace("frame", "site"))(thing)
            place = found.data if kind == "sensor" else found.xpos
            np.testing.assert_allclose(place - base, (matrix @ [*point, 1])[:3], rtol=0, atol=1e-4, err_msg=name)
            if kind in ("body", "frame"):
                axes = found.xmat.reshape(3, 3)
                np.testing.assert_allclose(axes, matrix[:3, :3], rtol=0, atol=tolerance["axes"], err_msg=name)


def test_masses_and_inertias(robot: Robot) -> None:
    model, facts, tolerance = robot
    listed = {model.body(name).id for name in facts["bodies"]}
    assert {model.body(i).name for i in range(1, model.nbody) if i not in listed} <= {"cube", "goal"}
    assert model.body_mass[[*listed]].sum() == pytest.approx(facts["mass"], rel=1e-3)
    for name, (*_, mass, centre, moments) in facts["bodies"].items():
        body, close = model.body(name), {"rtol": tolerance["moment_rel"], "atol": tolerance["moment"]}
        np.testing.assert_allclose(body.mass[0], mass, rtol=tolerance["mass"], err_msg=name)
        if centre is None:
            continue
        np.testing.assert_allclose(body.ipos, centre, rtol=0, atol=tolerance["centre"], err_msg=name)
        about_axes, known = inertia_of(model, name), inertia(*moments)
        if len(moments) == 3:
            about_axes, known = np.diag(about_axes), np.diag(known)
        np.testing.assert_allclose(about_axes, known, **close, err_msg=name)


def check_known(found: tuple[float, ...], expected: list[float | None], name: str) -> None:
    """The numbers that the table has."""
    pairs = [(x, y) for x, y in zip(found, expected, strict=True) if y is not None]
    np.testing.assert_allclose(*np.array(pairs).T, rtol=1e-12, err_msg=name)


def test_joints_and_servos_stand_in_order(robot: Robot) -> None:
    model, facts, _ = robot
    joints = [model.joint(i) for i in range(model.njnt) if model.jnt_type[i] != FREE]
    assert [joint.name for joint in joints] == list(facts["joints"])
    for joint, (body, axis, anchor, limits, *rest) in zip(joints, facts["joints"].values(), strict=True):
        assert model.body(int(joint.bodyid[0])).name == body
        assert joint.limited[0]
        np.testing.assert_allclose(joint.axis, np.array(axis) / np.linalg.norm(axis), atol=1e-5)
        assert [*joint.pos, *joint.range] == [*anchor, *limits], joint.name
        check_known((joint.damping[0], joint.armature[0], joint.stiffness[0], joint.frictionloss[0]), rest, joint.name)
    assert [model.actuator(i).name for i in range(model.nu)] == list(facts["servos"])
    for name, expected in facts["servos"].items():
        servo = model.actuator(name)
        assert model.joint(int(servo.trnid[0])).name == name
        found = (servo.gear[0], servo.gainprm[0], *servo.biasprm[:3], *servo.ctrlrange, *servo.forcerange)
        check_known(found, expected, name)
