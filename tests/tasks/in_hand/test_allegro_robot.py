"""The Allegro hand against the numbers of its fact table: kinematics, masses, limits, gains, collision filters."""

import math

import mujoco
import numpy as np
import pytest
import scenes
from tasks.allegro_kuka.kuka_chain import FINGERS as CHAINS
from tasks.allegro_kuka.kuka_chain import HAND_LIMITS
from tasks.frames import Frame, Z, check_rests, inertia, inertia_of, placed, turn

FINGERS = ("index", "middle", "ring")
NAMES = [f"{finger}_joint_{joint}" for finger in (*FINGERS, "thumb") for joint in range(4)]

PALM: Frame = ((-0.008219, -0.02063, 0.08086), (0, -math.pi / 2, math.pi / 4))
TIPS = dict.fromkeys(FINGERS, (0.0622, 0.0098, 0.0)) | {"thumb": (0.0771, 0.0095, 0.0)}

# Joint angles in the order of NAMES: zero, three round poses, both ends of all ranges, four arbitrary ones.
POSES = np.array(
    [
        [0.0] * 16,
        [0.0, 0.5, 0.5, 0.5, 0.0, 0.5, 0.5, 0.5, 0.0, 0.5, 0.5, 0.5, 0.8, 0.3, 0.3, 0.5],
        [0.3, 1.0, 0.2, 0.4, -0.3, 1.2, 0.1, 0.7, 0.1, 0.9, 0.6, 0.2, 1.2, 0.9, 0.1, 1.0],
        [-0.5, 0.0, 1.5, 0.0, 0.5, 1.5, 0.0, 1.5, -0.2, -0.2, 1.6, -0.2, 0.4, -0.3, 1.6, 1.6],
        [-0.55849, -0.27924, -0.27924, -0.27924] * 3 + [0.27924, -0.3316, -0.27924, -0.27924],
        [0.55849, 1.72782, 1.72782, 1.72782] * 3 + [1.57075, 1.15188, 1.72782, 1.76273],
        [0.11, 0.23, 0.37, 0.41, -0.13, 0.59, 0.61, 0.73, 0.17, 0.83, 0.97, 1.01, 1.03, 0.07, 1.09, 0.19],
        [-0.41, 1.31, 0.71, -0.17, 0.29, 0.43, 1.37, 0.53, 0.47, -0.11, 0.05, 1.49, 0.67, 1.13, -0.23, 0.79],
        [0.53, 0.89, 1.27, 0.31, -0.5, 1.39, 0.03, 1.21, -0.07, 1.63, -0.19, 0.77, 1.5, 0.61, 0.91, -0.1],
        [-0.02, 0.14, 0.95, 1.62, 0.38, -0.25, 0.66, 0.09, -0.55, 0.52, 1.11, 0.35, 0.3, -0.2, 1.7, 1.75],
    ]
)


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return scenes.load("allegro_hand")


def tip_of(finger: str, angles: np.ndarray) -> np.ndarray:
    """Where the chain of the fact table puts the end of a finger, in the mount's frame."""
    matrix = placed(PALM)
    for frame, angle in zip(CHAINS[finger], angles, strict=True):
        matrix = matrix @ placed(frame) @ turn(Z, angle)
    return (matrix @ [*TIPS[finger], 1.0])[:3]


@pytest.mark.parametrize("pose", POSES)
def test_fingertips_and_palm_are_where_the_table_puts_them(model: mujoco.MjModel, pose: np.ndarray) -> None:
    data = mujoco.MjData(model)
    data.qpos[:] = pose
    mujoco.mj_kinematics(model, data)
    for place, finger in enumerate((*FINGERS, "thumb")):
        expected = tip_of(finger, pose[4 * place : 4 * place + 4])
        np.testing.assert_allclose(data.site(f"{finger}_tip").xpos, expected, rtol=0, atol=1e-4)
    palm = placed(PALM)
    np.testing.assert_allclose(data.body("palm_link").xpos, palm[:3, 3], rtol=0, atol=1e-4)
    np.testing.assert_allclose(data.body("palm_link").xmat.reshape(3, 3), palm[:3, :3], rtol=0, atol=1e-4)


def test_masses(model: mujoco.MjModel) -> None:
    finger = [0.0119, 0.065, 0.0355, 0.0096 + 0.021]
    links = [0.05, 0.4154, *finger * 3, 0.0176, 0.0119, 0.038, 0.0388 + 0.021]
    np.testing.assert_allclose(model.body_mass[1:], links, rtol=1e-12)
    assert abs(model.body_mass.sum() / 1.0217 - 1) < 1e-3
    assert (model.body_gravcomp[1:] == 1).all()


def with_tip(mass: float, centre: tuple[float, float, float], link: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Centre of mass and inertia of a last link and its tip, a ball of 0.021 kg at the link's origin."""
    both = mass + 0.021
    joint = mass / both * np.array(centre)
    total = np.zeros((3, 3))
    for part, place, own in ((mass, np.array(centre), link), (0.021, np.zeros(3), 9.68e-7 * np.eye(3))):
        arm = place - joint
        total += own + part * (arm @ arm * np.eye(3) - np.outer(arm, arm))
    return joint, total


@pytest.mark.parametrize(
    ("body", "mass", "centre", "diagonal", "xy"),
    [
        ("middle_link_3", 0.0096, (0.019334, 0.000432, 0.0), (6.399e-07, 3.385e-06, 3.286e-06), -3.553e-07),
        ("thumb_link_3", 0.0388, (0.021964, -0.000458, 0.0), (3.359e-06, 1.87e-05, 1.831e-05), -1.313e-06),
    ],
)
def test_last_links_carry_their_tips(
    model: mujoco.MjModel, body: str, mass: float, centre: tuple, diagonal: tuple, xy: float
) -> None:
    joint, total = with_tip(mass, centre, inertia(*diagonal, xy))
    np.testing.assert_allclose(model.body(body).ipos, joint, rtol=0, atol=1e-7)
    np.testing.assert_allclose(inertia_of(model, body), total, rtol=1e-4, atol=1e-11)


def test_limits_gains_and_friction(model: mujoco.MjModel) -> None:
    assert [model.joint(i).name for i in range(model.njnt)] == NAMES
    assert [model.actuator(i).name for i in range(model.nu)] == NAMES
    np.testing.assert_array_equal(model.actuator_trnid[:, 0], np.arange(16))
    np.testing.assert_array_equal(model.jnt_range, HAND_LIMITS)
    np.testing.assert_array_equal(model.actuator_ctrlrange, HAND_LIMITS)
    assert (model.jnt_limited == 1).all()
    np.testing.assert_array_equal(model.actuator_gainprm[:, 0], np.full(16, 3.0))
    np.testing.assert_array_equal(model.actuator_biasprm[:, :3], np.tile([0, -3, -0.1], (16, 1)))
    np.testing.assert_array_equal(model.actuator_forcerange, np.tile([-0.5, 0.5], (16, 1)))
    np.testing.assert_array_equal(model.dof_armature, np.full(16, 0.001))
    np.testing.assert_array_equal(model.dof_frictionloss, np.full(16, 0.01))
    np.testing.assert_array_equal(model.dof_damping, np.zeros(16))


def test_only_boxes_and_capsules(model: mujoco.MjModel) -> None:
    box, capsule = int(mujoco.mjtGeom.mjGEOM_BOX), int(mujoco.mjtGeom.mjGEOM_CAPSULE)
    assert set(model.geom_type) == {box, capsule}
    touching = model.geom_contype != 0
    assert touching.sum() == 17
    assert (model.geom_type[touching] == box).sum() == 1  # the palm
    assert not (model.geom_contype & model.geom_conaffinity).any()  # of the hand, only the listed pairs meet


def test_a_hand_at_rest_stays_and_touches_nothing(model: mujoco.MjModel) -> None:
    check_rests(model, POSES[1], POSES[1], steps=240, atol=1e-3)


def test_motors_do_not_exceed_their_speed_limit(model: mujoco.MjModel) -> None:
    data = mujoco.MjData(model)
    data.qpos[12] = 0.5
    data.ctrl[:] = data.qpos
    data.ctrl[1] = 1.7  # far away: the servo saturates at 0.5 N m
    speeds = []
    for _ in range(24):
        mujoco.mj_step(model, data)
        speeds.append(data.joint("index_joint_1").qvel[0])
    assert 6.1 < max(speeds) < 6.283
    # 0.5 N m = c · (6.283 rad/s)³
    np.testing.assert_allclose(model.dof_dampingpoly, np.tile([0, 0.5 / 6.283**3], (16, 1)), rtol=1e-3)
