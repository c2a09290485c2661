"""Robots against their fact tables: kinematics computed a second time, masses, inertias, joints, servos."""

import mujoco
import numpy as np
import pytest
from tasks.allegro_kuka.states import DEFAULT
from tasks.franka_cube.states import HOME
from tasks.robots import TABLES, frame_of, inertia, inertia_of, limits, load, posed, step

FREE = int(mujoco.mjtJoint.mjJNT_FREE)
ROBOTS = pytest.mark.parametrize("robot", TABLES)


@ROBOTS
def test_points_are_where_the_table_puts_them(robot: str) -> None:
    """With all joints at zero, at either end of their ranges, and in seven random poses; to 0.1 mm."""
    model, table = load(robot), TABLES[robot]
    for name in table["joints"]:
        assert ("finger_joint" in name) == (model.joint(name).type[0] == mujoco.mjtJoint.mjJNT_SLIDE)
    low, high = limits(robot).clip(-np.pi, np.pi).T
    random = np.random.default_rng(1).uniform(low, high, (7, len(low)))
    for pose in (np.zeros(len(low)), low, high, *random):
        data, angles = mujoco.MjData(model), dict(zip(table["joints"], pose, strict=True))
        for name, angle in angles.items():
            data.joint(name).qpos = angle
        mujoco.mj_forward(model, data)
        base = data.qpos[:3] if model.jnt_type[0] == FREE else np.zeros(3)
        for name, (body, point) in table["points"].items():
            kind, _, thing = name.partition(" ")
            matrix, found = frame_of(robot, body, angles), getattr(data, kind.replace("frame", "site"))(thing)
            place = found.data if kind == "sensor" else found.xpos
            np.testing.assert_allclose(place - base, (matrix @ [*point, 1])[:3], rtol=0, atol=1e-4, err_msg=name)
            if kind in ("body", "frame"):
                axes, close = found.xmat.reshape(3, 3), table["tolerances"]["axes"]
                np.testing.assert_allclose(axes, matrix[:3, :3], rtol=0, atol=close, err_msg=name)


@ROBOTS
def test_masses_and_inertias(robot: str) -> None:
    model, table, tolerance = load(robot), TABLES[robot], TABLES[robot]["tolerances"]
    listed = {model.body(name).id for name in table["bodies"]}
    assert {model.body(i).name for i in range(1, model.nbody) if i not in listed} <= {"cube", "goal"}
    assert model.body_mass[[*listed]].sum() == pytest.approx(table["mass"], rel=1e-3)
    for name, (*_, mass, centre, moments) in table["bodies"].items():
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
    known = [(x, y) for x, y in zip(found, expected, strict=True) if y is not None]
    np.testing.assert_allclose(*np.array(known).T, rtol=1e-12, err_msg=name)


@ROBOTS
def test_joints_and_servos_stand_in_order(robot: str) -> None:
    model, table = load(robot), TABLES[robot]
    joints = [model.joint(i) for i in range(model.njnt) if model.jnt_type[i] != FREE]
    assert [joint.name for joint in joints] == list(table["joints"])
    for joint, (body, axis, anchor, ends, *rest) in zip(joints, table["joints"].values(), strict=True):
        assert model.body(int(joint.bodyid[0])).name == body
        assert joint.limited[0]
        np.testing.assert_allclose(joint.axis, np.array(axis) / np.linalg.norm(axis), atol=1e-5)
        assert [*joint.pos, *joint.range] == [*anchor, *ends], joint.name
        check_known((joint.damping[0], joint.armature[0], joint.stiffness[0], joint.frictionloss[0]), rest, joint.name)
    assert [model.actuator(i).name for i in range(model.nu)] == list(table["servos"])
    for name, expected in table["servos"].items():
        servo = model.actuator(name)
        assert model.joint(int(servo.trnid[0])).name == name
        found = (servo.gear[0], servo.gainprm[0], *servo.biasprm[:3], *servo.ctrlrange, *servo.forcerange)
        check_known(found, expected, name)


HAND = (*(0.0, 0.5, 0.5, 0.5) * 3, 0.8, 0.3, 0.3, 0.5)


@pytest.mark.parametrize(
    ("robot", "pose", "ctrl", "steps", "atol"),
    [
        ("allegro_hand", HAND, HAND, 240, 1e-3),
        ("kuka_allegro", (*DEFAULT, *HAND), (*DEFAULT, *HAND), 240, 1e-3),
        ("panda", (*HOME, 0.035, 0.035), (*[0] * 7, 0.035, 0.035), 100, 1e-6),
    ],
)
def test_at_rest_it_stays_without_weight_and_touches_nothing(
    robot: str, pose: tuple, ctrl: tuple, steps: int, atol: float
) -> None:
    model = load(robot)
    data = posed(model, pose)
    data.ctrl[:] = ctrl
    for _ in range(steps):
        step(model, data, 1)
        assert data.ncon == 0
    np.testing.assert_allclose(data.qpos, pose, atol=atol)
    assert robot == "panda" or (model.body_gravcomp[1:] == 1).all()
    assert robot != "kuka_allegro" or not model.dof_dampingpoly.any()
