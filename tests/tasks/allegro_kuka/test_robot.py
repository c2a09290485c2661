"""The iiwa 7 with the Allegro hand against its fact table: kinematics, masses, limits, servos, collision filters."""

import mujoco
import numpy as np
import pytest
from tasks.allegro_kuka.kuka_chain import ARM_LIMITS, DEFAULT, FINGERS, HAND_LIMITS, fingertip, last_link
from tasks.frames import check_rests, inertia, inertia_of

from echelon.tasks.allegro_kuka.robot import kuka_allegro

LIMITS = np.array([*ARM_LIMITS, *HAND_LIMITS])
SHARES = np.array([[0.618], [0.414], [0.732], [0.236], [0.141], [0.873]])
# Zero, the tasks' default pose, both ends of all ranges, six arbitrary ones.
POSES = np.concatenate(
    (
        [np.zeros(23), [*DEFAULT, *[0.0] * 16], LIMITS[:, 0], LIMITS[:, 1]],
        LIMITS[:, 0] + (np.arange(1, 24) * SHARES % 1) * np.ptp(LIMITS, axis=1),
    )
)


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return kuka_allegro().compile()


@pytest.mark.parametrize("pose", POSES)
def test_palm_and_fingertips_are_where_the_table_puts_them(model: mujoco.MjModel, pose: np.ndarray) -> None:
    data = mujoco.MjData(model)
    data.qpos[:] = pose
    mujoco.mj_forward(model, data)
    link = last_link(pose)
    np.testing.assert_allclose(data.body("iiwa7_link_7").xpos, link[:3, 3], rtol=0, atol=1e-4)
    np.testing.assert_allclose(data.body("iiwa7_link_7").xmat.reshape(3, 3), link[:3, :3], rtol=0, atol=1e-4)
    np.testing.assert_allclose(data.sensor("palm").data, (link @ [0, -0.02, 0.16, 1])[:3], rtol=0, atol=1e-4)
    for finger in FINGERS:
        expected = fingertip(finger, pose)
        np.testing.assert_allclose(data.sensor(f"hand/{finger}").data, expected, rtol=0, atol=1e-4)


def test_palm_sensors_are_those_of_the_last_link(model: mujoco.MjModel) -> None:
    """Velocities by differences of the chain over 1e-6 s."""
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = POSES[5], np.linspace(-1, 1, 23)
    mujoco.mj_forward(model, data)
    before, after = (last_link(POSES[5] + sign * 5e-7 * data.qvel) for sign in (-1, 1))
    np.testing.assert_allclose(data.sensor("palm_linvel").data, (after - before)[:3, 3] / 1e-6, rtol=0, atol=1e-4)
    spin = (after - before)[:3, :3] / 1e-6 @ last_link(POSES[5])[:3, :3].T
    np.testing.assert_allclose(data.sensor("palm_angvel").data, [spin[2, 1], spin[0, 2], spin[1, 0]], rtol=0, atol=1e-4)
    matrix = np.zeros(9)
    mujoco.mju_quat2Mat(matrix, data.sensor("palm_quat").data)
    np.testing.assert_allclose(matrix.reshape(3, 3), last_link(POSES[5])[:3, :3], rtol=0, atol=1e-4)


def test_the_default_pose_holds_the_palm_over_the_table(model: mujoco.MjModel) -> None:
    """Published for a base at (0, 0.8, 0), to the millimetre: palm down, fingers along -y."""
    data = mujoco.MjData(model)
    data.qpos[:7] = DEFAULT
    mujoco.mj_forward(model, data)
    base = np.array([0, 0.8, 0])
    places = {
        "palm": (0.014, 0.085, 0.692),
        "hand/index": (0.069, -0.101, 0.684),
        "hand/middle": (0.012, -0.104, 0.683),
        "hand/ring": (-0.046, -0.101, 0.683),
        "hand/thumb": (0.195, 0.135, 0.728),
    }
    for name, place in places.items():
        np.testing.assert_allclose(base + data.sensor(name).data, place, rtol=0, atol=1.1e-3)
    assert data.body("hand/palm_link").xmat.reshape(3, 3)[2, 2] < -0.98


def test_masses(model: mujoco.MjModel) -> None:
    arm = [5, 3.4525, 3.4821, 4.05623, 3.4822, 2.1633, 2.3466, 3.129, 0.1]
    hand = [0.05, 0.4154, *[0.005, 0.125164, 0.131691, 0.0211922] * 3, *[0.1] * 4]
    np.testing.assert_allclose(model.body_mass[1:], [*arm, *hand], rtol=1e-12)
    assert abs(model.body_mass.sum() / 28.926 - 1) < 1e-3
    assert (model.body_gravcomp[1:] == 1).all()


@pytest.mark.parametrize(
    ("body", "centre", "diagonal", "products"),
    [
        ("iiwa7_link_2", (0.0003, 0.059, 0.042), (0.02076, 0.02179, 0.00779), (0, -0.003626, 0)),
        ("iiwa7_link_5", (0.0001, 0.021, 0.076), (0.01287, 0.005708, 0.01112), (0, 0, -0.003946)),
        ("iiwa7_link_7", (0, 0, 0.02), (0.01464, 0.01465, 0.002872), (0.0005912, 0, 0)),
        ("hand/middle_link_0", (0, 0, 0), (5.146e-05, 5.146e-05, 6.125e-05), (0, 0, 0)),
        ("hand/ring_link_2", (0.0203, -0.0022, 0), (1.409e-05, 3.744e-05, 3.6e-05), (0, 0, 0)),
        ("hand/index_link_3", (0.012331, -0.000667, 0), (1.498e-06, 3.91e-06, 3.478e-06), (-9.523e-08, 0, 0)),
        ("hand/thumb_link_3", (0, 0, 0), (5.146e-05, 5.146e-05, 6.125e-05), (0, 0, 0)),
    ],
)
def test_inertias(model: mujoco.MjModel, body: str, centre: tuple, diagonal: tuple, products: tuple) -> None:
    np.testing.assert_allclose(model.body(body).ipos, centre, rtol=0, atol=1e-9)
    np.testing.assert_allclose(inertia_of(model, body), inertia(*diagonal, *products), rtol=1e-6, atol=1e-12)


def test_joints_and_servos(model: mujoco.MjModel) -> None:
    names = [f"iiwa7_joint_{i}" for i in range(1, 8)]
    names += [f"hand/{finger}_joint_{i}" for finger in FINGERS for i in range(4)]
    assert [model.joint(i).name for i in range(model.njnt)] == names
    assert [model.actuator(i).name for i in range(model.nu)] == names
    np.testing.assert_array_equal(model.actuator_trnid[:, 0], np.arange(23))
    np.testing.assert_array_equal(model.jnt_range, LIMITS)
    np.testing.assert_array_equal(model.actuator_ctrlrange, LIMITS)
    assert (model.jnt_limited == 1).all()
    np.testing.assert_array_equal(model.actuator_gainprm[:, 0], np.full(23, 40.0))
    np.testing.assert_array_equal(model.actuator_biasprm[:, :3], np.tile([0, -40, -5], (23, 1)))
    torques = np.array([300.0] * 7 + [0.35] * 16)
    np.testing.assert_array_equal(model.actuator_forcerange, np.stack((-torques, torques), axis=1))
    np.testing.assert_array_equal(model.dof_armature, [0.01] * 7 + [0.004] * 16)
    assert not model.dof_frictionloss.any()
    assert not model.dof_damping.any()
    assert not model.dof_dampingpoly.any()


def test_of_the_arm_only_the_wrist_touches_and_only_a_table(model: mujoco.MjModel) -> None:
    shapes = {int(getattr(mujoco.mjtGeom, f"mjGEOM_{name}")) for name in ("SPHERE", "CAPSULE", "BOX", "CYLINDER")}
    assert set(model.geom_type) == shapes
    touching = {model.geom(i).name for i in np.flatnonzero(model.geom_contype)}
    arm = {name for name in touching if not name.startswith("hand/")}
    assert arm == {"link_5_back", "link_5_front", "link_6", "link_7"}
    assert len(touching) == 4 + 17
    assert all(model.geom(name).contype[0] == 4 and model.geom(name).conaffinity[0] == 0 for name in arm)


def test_at_rest_it_stays_and_touches_nothing(model: mujoco.MjModel) -> None:
    pose = np.array([*DEFAULT, *[0.0, 0.5, 0.5, 0.5] * 3, 0.8, 0.3, 0.3, 0.5])
    check_rests(model, pose, pose, steps=240, atol=1e-3)
