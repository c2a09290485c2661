"""The Panda and its table against the numbers of their fact tables: kinematics, masses, joints, motors, collisions."""

import mujoco
import numpy as np
import pytest
import scenes
from tasks.frames import Inertia, Vector, Z, check_inertias, check_rests, placed_by_quat, turn

R = 0.707107
JOINTS = [f"joint{i}" for i in range(1, 8)] + ["finger_joint1", "finger_joint2"]

# Frame in the parent: position [m] and quaternion wxyz. Every link turns about its own z.
LINKS: list[tuple[Vector, Vector]] = [
    ((0, 0, 0.333), (1, 0, 0, 0)),
    ((0, 0, 0), (R, -R, 0, 0)),
    ((0, -0.316, 0), (R, R, 0, 0)),
    ((0.0825, 0, 0), (R, R, 0, 0)),
    ((-0.0825, 0.384, 0), (R, -R, 0, 0)),
    ((0, 0, 0), (R, R, 0, 0)),
    ((0.088, 0, 0), (R, R, 0, 0)),
]
HAND: tuple[Vector, Vector] = ((0, 0, 0.107), (0.92388, 0, 0, -0.382683))
FINGER_BASE = (0, 0, 0.0584)
TIP = np.array((0, 0.0015, 0.0441))

INERTIA: dict[str, Inertia] = {
    "link0": (0.629769, (-0.041018, -0.00014, 0.049974), (0.00315, 0.00388, 0.004285, 8.29e-07, 0.00015, 8.23e-06)),
    "link1": (4.97068, (0.003875, 0.002081, -0.04762), (0.7034, 0.7066, 0.009117, -0.000139, 0.006772, 0.01917)),
    "link2": (0.646926, (-0.003141, -0.02872, 0.003495), (0.007962, 0.02811, 0.026, -0.003925, 0.01025, 0.000704)),
    "link3": (3.2286, (0.027518, 0.039252, -0.066502), (0.03724, 0.03615, 0.01083, -0.004761, -0.0114, -0.01281)),
    "link4": (3.5879, (-0.05317, 0.104419, 0.027454), (0.02585, 0.01955, 0.02832, 0.007796, -0.001332, 0.008641)),
    "link5": (1.22595, (-0.011953, 0.041065, -0.038437), (0.03555, 0.02947, 0.008627, -0.002117, -0.004037, 0.000229)),
    "link6": (1.66656, (0.060149, -0.014117, -0.010517), (0.001964, 0.004354, 0.005433, 0.000109, -0.001158, 0.000341)),
    "link7": (0.735522, (0.010517, -0.004252, 0.061597), (0.01252, 0.01003, 0.004815, -0.000428, -0.001196, -0.000741)),
    "hand": (0.73, (-0.01, 0, 0.03), (0.001, 0.0025, 0.0017, 0, 0, 0)),
    "left_finger": (0.015, (0, 0, 0), (2.375e-06, 2.375e-06, 7.5e-07, 0, 0, 0)),
    "right_finger": (0.015, (0, 0, 0), (2.375e-06, 2.375e-06, 7.5e-07, 0, 0, 0)),
}
LOW = np.array([-2.8973, -1.7628, -2.8973, -3.0718, -2.8973, -0.0175, -2.8973, 0, 0])
HIGH = np.array([2.8973, 1.7628, 2.8973, -0.0698, 2.8973, 3.7525, 2.8973, 0.04, 0.04])
DEFAULT = np.array([0, 0.1963, 0, -2.618, 0, 2.9416, 0.7854, 0.035, 0.035])
POSES = np.concatenate(([np.zeros(9), DEFAULT, LOW, HIGH], np.random.default_rng(1).uniform(LOW, HIGH, (6, 9))))


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return scenes.load("panda")


def chain(pose: np.ndarray) -> dict[str, np.ndarray]:
    """Where hand, grip point and fingertips are, by the table."""
    place = np.eye(4)
    for link, angle in zip(LINKS, pose[:7], strict=True):
        place = place @ placed_by_quat(*link) @ turn(Z, angle)
    hand = place @ placed_by_quat(*HAND)
    points = {"hand": np.zeros(3), "grip": np.array((0, 0, 0.1025))}
    # The left finger opens along the hand's +y, the right one, turned by half a revolution, along -y.
    points["left_tip"] = np.array(FINGER_BASE) + TIP + (0, pose[7], 0)
    points["right_tip"] = np.array(FINGER_BASE) + TIP * (1, -1, 1) - (0, pose[8], 0)
    return {name: (hand @ np.append(point, 1))[:3] for name, point in points.items()} | {"axes": hand[:3, :3]}


@pytest.mark.parametrize("pose", POSES)
def test_hand_and_fingertips_are_where_the_table_puts_them(model: mujoco.MjModel, pose: np.ndarray) -> None:
    data = mujoco.MjData(model)
    data.qpos[:] = pose
    mujoco.mj_forward(model, data)
    expected = chain(pose)
    np.testing.assert_allclose(data.body("hand").xpos, expected["hand"], atol=1e-4)
    np.testing.assert_allclose(data.body("hand").xmat.reshape(3, 3), expected["axes"], atol=1e-4)
    np.testing.assert_allclose(data.site("grip").xmat.reshape(3, 3), expected["axes"], atol=1e-4)
    for name in ("grip", "left_tip", "right_tip"):
        np.testing.assert_allclose(data.site(name).xpos, expected[name], atol=1e-4, err_msg=name)
        np.testing.assert_allclose(data.sensor(f"{name}_pos").data, expected[name], atol=1e-4, err_msg=name)


def test_masses_and_inertias(model: mujoco.MjModel) -> None:
    assert model.body_mass.sum() == pytest.approx(17.452, rel=1e-3)
    assert {model.body(i).name for i in range(1, model.nbody)} == set(INERTIA)
    check_inertias(model, INERTIA)


def test_joints_motors_and_servos(model: mujoco.MjModel) -> None:
    assert [model.joint(i).name for i in range(model.njnt)] == JOINTS
    assert model.actuator_trnid[:, 0].tolist() == list(range(9))
    np.testing.assert_array_equal(model.jnt_range, np.stack((LOW, HIGH), axis=1))
    assert model.jnt_limited.all()
    assert not model.dof_frictionloss.any()
    assert not model.dof_damping.any()
    assert model.dof_armature.tolist() == [0.05] * 7 + [0.5] * 2
    torque = np.array([87.0] * 4 + [12.0] * 3)
    np.testing.assert_array_equal(model.actuator_forcerange[:7], np.stack((-torque, torque), axis=1))
    np.testing.assert_array_equal(model.actuator_ctrlrange[:7], model.actuator_forcerange[:7])
    assert (model.actuator_gainprm[:7, 0] == 1).all()
    assert not model.actuator_biasprm[:7].any()
    for name in ("finger_joint1", "finger_joint2"):
        servo = model.actuator(name)
        assert (servo.gainprm[0], *servo.biasprm[:3]) == (1000, 0, -1000, -100)
        assert tuple(servo.forcerange) == (-200, 200)
        assert tuple(servo.ctrlrange) == (0, 0.04)


def test_drag_takes_the_whole_torque_at_two_and_a_half_times_the_datasheets_speed(model: mujoco.MjModel) -> None:
    data = mujoco.MjData(model)
    data.qpos[:] = DEFAULT
    speed, torque = np.array([2.175] * 4 + [2.61] * 3), np.array([87.0] * 4 + [12.0] * 3)
    for factor, share in ((2.5, 1.0), (1.25, 0.125), (-2.5, -1.0)):
        data.qvel[:7] = factor * speed
        mujoco.mj_forward(model, data)
        np.testing.assert_allclose(data.qfrc_damper[:7], -share * torque, rtol=1e-3)
    assert not data.qfrc_damper[7:].any()


def test_gravity_does_not_act_on_the_robot(model: mujoco.MjModel) -> None:
    check_rests(model, DEFAULT, np.append(np.zeros(7), DEFAULT[7:]), steps=100, atol=1e-6)


def test_the_default_pose_on_its_stand_has_the_grip_point_over_the_table() -> None:
    model = scenes.load("franka_stack")
    data = mujoco.MjData(model)
    data.qpos[-9:] = DEFAULT
    mujoco.mj_forward(model, data)
    np.testing.assert_allclose(data.body("panda/hand").xpos, (-0.005, 0, 1.320), atol=1e-3)
    np.testing.assert_allclose(data.site("panda/grip").xpos, (0.008, 0, 1.218), atol=1e-3)
    quat = data.sensor("panda/grip_quat").data
    np.testing.assert_allclose(quat * np.sign(quat[1]), (0, 0.998, 0, 0.064), atol=1e-3)


SOLID = {"panda/hand", *(f"panda/{side}_{part}" for side in ("left", "right") for part in ("knuckle", "web", "tip"))}


@pytest.mark.parametrize(("scene", "cubes"), [("franka_push", {"cube_a"}), ("franka_stack", {"cube_a", "cube_b"})])
def test_what_can_touch_what(scene: str, cubes: set[str]) -> None:
    model = scenes.load(scene)
    geoms = [model.geom(i) for i in range(model.ngeom)]
    touching = {
        frozenset((one.name, two.name))
        for i, one in enumerate(geoms)
        for two in geoms[:i]
        if (one.contype[0] & two.conaffinity[0]) or (two.contype[0] & one.conaffinity[0])
    }
    expected = {frozenset((cube, thing)) for cube in cubes for thing in SOLID | {"table", "floor"}}
    expected |= {frozenset((thing, "table")) for thing in SOLID}
    if len(cubes) == 2:
        expected |= {frozenset(cubes)}
    assert touching == expected
    assert model.opt.disableflags & int(mujoco.mjtDisableBit.mjDSBL_NATIVECCD)  # box against box stays a primitive pair


def test_table_and_cubes() -> None:
    model = scenes.load("franka_stack")
    table = model.geom("table")
    np.testing.assert_allclose(table.pos, (0, 0, 1.0))
    np.testing.assert_allclose(table.size, (0.6, 0.6, 0.025))
    np.testing.assert_allclose(model.body("panda/link0").pos, (-0.45, 0, 1.125))
    for name, edge, mass in (("cube_a", 0.05, 0.125), ("cube_b", 0.07, 0.343)):
        np.testing.assert_allclose(model.geom(name).size, edge / 2)
        assert model.body(name).mass[0] == pytest.approx(mass, rel=1e-6)
        np.testing.assert_allclose(model.body(name).inertia, mass * edge**2 / 6)


def test_a_shut_gripper_holds_a_cube_without_sinking_in_or_letting_go() -> None:
    model = scenes.load("franka_push")
    data = mujoco.MjData(model)
    model.dof_damping[6:13] = 1e4  # the arm stands
    data.qpos[-9:] = DEFAULT
    mujoco.mj_forward(model, data)
    data.qpos[:3], data.qpos[3:7] = data.site("panda/grip").xpos, data.sensor("panda/grip_quat").data
    for _ in range(60):
        mujoco.mj_step(model, data)
    held = data.qpos[:3] - data.site("panda/grip").xpos
    for _ in range(240):
        mujoco.mj_step(model, data)
    np.testing.assert_allclose(data.qpos[-2:], 0.025, atol=5e-4)
    assert np.linalg.norm(data.qpos[:3] - data.site("panda/grip").xpos - held) < 4e-4
    assert np.abs(data.qvel[6:]).max() < 1e-3
    wrench, force = np.zeros(6), 0.0
    for i in range(data.ncon):
        mujoco.mj_contactForce(model, data, i, wrench)
        force += wrench[0]
    assert force == pytest.approx(2 * 1000 * 0.025, rel=0.02)  # of both fingers, 25 N each
