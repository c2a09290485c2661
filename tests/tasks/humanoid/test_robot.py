"""The humanoid against the numbers of its fact table: kinematics, masses, inertias, joints, motors, collisions."""

import mujoco
import numpy as np
import pytest
import scenes
from tasks.frames import check_inertias, moved, placed_by_quat, turn

# Body: parent, position in it [m], quaternion wxyz, mass [kg], centre of mass [m], Ixx Iyy Izz Ixy Ixz Iyz [kg m²].
FLAT = (1.0, 0.0, 0.0, 0.0)
TILT = (0.999998, 0.0, -0.002, 0.0)
TORSO = (0.05114, 0.03197, 0.03129, 0, -0.001666, 0)
HEAD = (0.009894, 0.009894, 0.009894, 0, 0, 0)
WAIST = (0.009853, 0.003746, 0.009853, 0, 0, 0)
PELVIS = (0.05232, 0.02432, 0.05232, 0, 0, 0)
SHIN = (0.03261, 0.03261, 0.00319, 0, 0, 0)
FOOT = (0.000903, 0.005944, 0.006446, 0, 0, 0)
HAND = (0.0001716, 0.0001716, 0.0001716, 0, 0, 0)
BODIES = {
    "torso": (None, (0, 0, 0), FLAT, 5.85383, (-0.003864, 0, -0.046369), TORSO),
    "head": ("torso", (0, 0, 0.19), FLAT, 3.05363, (0, 0, 0), HEAD),
    "lower_waist": ("torso", (-0.01, 0, -0.26), TILT, 2.26195, (0, 0, 0), WAIST),
    "pelvis": ("lower_waist", (0, 0, -0.165), TILT, 6.61619, (-0.02, 0, 0), PELVIS),
}
for side, s in (("right", -1), ("left", 1)):
    thigh = (0.07495, 0.07489, 0.008285, 0, 0, -s * 0.001961)
    upper = (0.01103, 0.01103, 0.01103, -s * 0.004873, 0.004873, s * 0.004873)
    lower = (0.005751, 0.005751, 0.005751, s * 0.002651, -0.002651, s * 0.002651)
    BODIES |= {
        f"{side}_thigh": ("pelvis", (0, s * 0.1, -0.04), FLAT, 4.75175, (0, -s * 0.005, -0.17), thigh),
        f"{side}_shin": (f"{side}_thigh", (0, -s * 0.01, -0.403), FLAT, 2.7557, (0, 0, -0.15), SHIN),
        f"{side}_foot": (f"{side}_shin", (0, 0, -0.39), FLAT, 1.13114, (0.035, s * 0.01, 0), FOOT),
        f"{side}_upper_arm": ("torso", (0, s * 0.17, 0.06), FLAT, 1.66108, (0.08, s * 0.08, -0.08), upper),
        f"{side}_lower_arm": (
            *(f"{side}_upper_arm", (0.18, s * 0.18, -0.18), FLAT, 0.961458, (0.09, -s * 0.09, 0.09), lower),
        ),
        f"{side}_hand": (f"{side}_lower_arm", (0.18, -s * 0.18, 0.18), FLAT, 0.268083, (0, 0, 0), HAND),
    }

# Joint: body, axis, anchor [m], range [rad], damping, armature, stiffness, gear [N m]. In the order of actions.
ANKLE = (0, 0, 0.08)
JOINTS = {
    "abdomen_z": ("lower_waist", (0, 0, 1), (0, 0, 0.065), (-0.7854, 0.7854), 5, 0.02, 20, 67.5),
    "abdomen_y": ("lower_waist", (0, 1, 0), (0, 0, 0.065), (-1.309, 0.5236), 5, 0.01, 20, 67.5),
    "abdomen_x": ("pelvis", (1, 0, 0), (0, 0, 0.1), (-0.61087, 0.61087), 5, 0.01, 10, 67.5),
}
for side, s in (("right", -1), ("left", 1)):
    JOINTS |= {
        f"{side}_hip_x": (f"{side}_thigh", (-s, 0, 0), (0, 0, 0), (-0.7854, 0.2618), 5, 0.01, 10, 45),
        f"{side}_hip_z": (f"{side}_thigh", (0, 0, -s), (0, 0, 0), (-1.0472, 0.61087), 5, 0.01, 10, 45),
        f"{side}_hip_y": (f"{side}_thigh", (0, 1, 0), (0, 0, 0), (-2.0944, 0.7854), 5, 0.01, 20, 135),
        f"{side}_knee": (f"{side}_shin", (0, -1, 0), (0, 0, 0.02), (-2.79253, 0.03491), 0.1, 0.007, 5, 90),
        f"{side}_ankle_y": (f"{side}_foot", (0, 1, 0), ANKLE, (-0.87266, 0.87266), 1, 0.006, 2, 22.5),
        f"{side}_ankle_x": (f"{side}_foot", (0.894427, 0, 0.447214), ANKLE, (-0.87266, 0.87266), 1, 0.006, 2, 22.5),
    }
for side, s in (("right", -1), ("left", 1)):
    first, second = (-s * 0.816497, 0.408248, -s * 0.408248), (0, -0.707107, -s * 0.707107)
    JOINTS |= {
        f"{side}_shoulder1": (f"{side}_upper_arm", first, (0, 0, 0), (-1.5708, 1.22173), 5, 0.01, 10, 67.5),
        f"{side}_shoulder2": (f"{side}_upper_arm", second, (0, 0, 0), (-1.5708, 1.22173), 5, 0.01, 10, 67.5),
        f"{side}_elbow": (f"{side}_lower_arm", second, (0, 0, 0), (-1.5708, 0.87266), 1, 0.006, 2, 45),
    }

POINTS = ("right_foot", "left_foot", "right_hand", "left_hand", "head")
RANGES = np.array([joint[3] for joint in JOINTS.values()])
POSES = np.concatenate(
    (np.zeros((1, 21)), RANGES.T, np.random.default_rng(0).uniform(RANGES[:, 0], RANGES[:, 1], (7, 21)))
)


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return scenes.load("humanoid")


def frame_of(body: str, angles: dict[str, float]) -> np.ndarray:
    """`[4, 4]`: torso from body, by the tables above."""
    parent, position, quat, *_ = BODIES[body]
    if parent is None:
        return np.eye(4)
    matrix = frame_of(parent, angles) @ placed_by_quat(position, quat)
    for name, (owner, joint_axis, anchor, *_) in JOINTS.items():
        if owner == body:
            matrix = matrix @ moved(anchor) @ turn(joint_axis, angles[name]) @ moved(tuple(-np.array(anchor)))
    return matrix


@pytest.mark.parametrize("pose", POSES)
def test_feet_hands_and_head_are_where_the_table_puts_them(model: mujoco.MjModel, pose: np.ndarray) -> None:
    data = mujoco.MjData(model)
    data.qpos[7:] = pose
    mujoco.mj_kinematics(model, data)
    angles = dict(zip(JOINTS, pose, strict=True))
    for name in POINTS:
        expected = frame_of(name, angles)
        np.testing.assert_allclose(data.site(name).xpos - data.qpos[:3], expected[:3, 3], atol=1e-4)
        np.testing.assert_allclose(data.site(name).xmat.reshape(3, 3), expected[:3, :3], atol=1e-4)


def test_soles_are_1285_mm_below_the_torso(model: mujoco.MjModel) -> None:
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    assert data.qpos[2] - (data.site("right_foot").xpos[2] - 0.027) == pytest.approx(1.285, abs=1e-3)


def test_masses_and_inertias(model: mujoco.MjModel) -> None:
    assert model.body_mass.sum() == pytest.approx(40.844, rel=1e-3)
    check_inertias(model, {name: row[3:] for name, row in BODIES.items()}, mass_rel=1e-3, centre=1e-5, moment=6e-6)


def test_joints_and_motors_stand_in_the_order_of_actions(model: mujoco.MjModel) -> None:
    assert [model.joint(i).name for i in range(1, model.njnt)] == list(JOINTS)
    assert model.actuator_trnid[:, 0].tolist() == list(range(1, 22))
    assert (model.actuator_ctrlrange == [-1, 1]).all()
    for name, (_, _, _, limits, damping, armature, stiffness, gear) in JOINTS.items():
        joint, motor = model.joint(name), model.actuator(name)
        assert joint.limited[0]
        assert tuple(joint.range) == limits, name
        assert (joint.damping[0], joint.armature[0], joint.stiffness[0]) == (damping, armature, stiffness), name
        assert (motor.gear[0], motor.gainprm[0], *motor.biasprm[:3]) == (gear, 1, 0, 0, 0), name
        assert joint.frictionloss[0] == 0


def collides(model: mujoco.MjModel, one: str, other: str) -> bool:
    a, b = model.geom(one), model.geom(other)
    return bool(a.contype[0] & b.conaffinity[0] or b.contype[0] & a.conaffinity[0])


def test_collision_pairs(model: mujoco.MjModel) -> None:
    solid = [model.geom(i).name for i in range(model.ngeom) if model.geom(i).contype[0]]
    assert len(solid) == 19  # the geoms of the fact table; the floor waits to be collided with
    assert all(collides(model, name, "floor") for name in solid)
    right, left = ("right_thigh", "right_shin", "right_foot_inner"), ("left_thigh", "left_foot_outer")
    assert all(collides(model, a, b) for a in right for b in left)
    arms, hands = ("right_hand", "left_lower_arm"), ("right_hand", "left_hand")
    assert all(collides(model, a, b) for a in arms for b in ("torso", "pelvis", "left_thigh"))
    assert not any(collides(model, a, b) for a in right for b in (*right, "torso", "pelvis"))
    assert not any(collides(model, a, b) for a in hands for b in ("head", "left_shin", "left_hand"))
    assert not any(collides(model, name, "torso") for name in ("right_upper_arm", "head", "lower_waist"))


def test_stops_stop_a_leg_that_is_flung(model: mujoco.MjModel) -> None:
    """A knee at 20 rad/s passes its stop by what it moves in a physics step, about 0.12 rad, and comes back."""
    data = mujoco.MjData(model)
    data.qpos[2] = 3.0
    data.joint("right_knee").qvel = 20.0
    data.actuator("right_knee").ctrl = 1.0
    beyond = []
    for _ in range(40):
        mujoco.mj_step(model, data)
        beyond.append(data.joint("right_knee").qpos[0] - JOINTS["right_knee"][3][1])
    assert 0.0 < max(beyond) < 0.13
    assert max(beyond[20:]) < 0.01


def test_standing_weighs_on_the_feet(model: mujoco.MjModel) -> None:
    data = mujoco.MjData(model)
    data.qpos[2] = 1.285
    for _ in range(20):  # about 0.1 s: settled on its feet, not yet fallen
        mujoco.mj_step(model, data)
    # The sensors read what the shins exert on the feet: the weight above them, downwards.
    load = data.sensor("right_foot_force").data[2] + data.sensor("left_foot_force").data[2]
    assert load == pytest.approx(-9.81 * (40.844 - 2 * 1.13114), rel=0.1)
