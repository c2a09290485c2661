"""ANYmal C against the numbers of its fact table: kinematics, masses, inertias, joints, servos, collisions."""

import mujoco
import numpy as np
import pytest
import scenes
from tasks.frames import Inertia, Vector, X, check_inertias, placed_by_quat, turn

LEGS = ("LF", "LH", "RF", "RH")
JOINTS = [f"{leg}_{joint}" for leg in LEGS for joint in ("HAA", "HFE", "KFE")]

# Frames: position in the parent [m] and quaternion wxyz. Legs LF and RH are built alike, and so are RF and LH.
HIP: dict[str, tuple[Vector, Vector]] = {
    "LF": ((0.2999, 0.104, 0), (0.258819, 0.965926, 0, 0)),
    "RF": ((0.2999, -0.104, 0), (0.258819, -0.965926, 0, 0)),
    "LH": ((-0.2999, 0.104, 0), (0, 0, 0.965926, -0.258819)),
    "RH": ((-0.2999, -0.104, 0), (0, 0, 0.965926, 0.258819)),
}
KIND = {"LF": 0, "RF": 1, "LH": 1, "RH": 0}
THIGH: list[tuple[Vector, Vector]] = [
    ((0.0599, -0.072582, -0.041905), (0.183013, -0.683013, 0.683013, 0.183013)),
    ((0.0599, 0.072582, -0.041905), (0.183013, 0.683013, 0.683013, -0.183013)),
]
SHANK: tuple[Vector, Vector] = ((0.1003, 0, -0.285), (1, 0, 0, 0))
FOOT_SPHERE: list[Vector] = [(0.01305, -0.08795, -0.31547), (0.01305, 0.08795, -0.31547)]
FOOT_FRAME: list[Vector] = [(0.01305, -0.08795, -0.33797), (0.01305, 0.08795, -0.33797)]
# Signs of the axes: HAA turns about ±x of the hip's frame, HFE and KFE about ±x of the thigh's and the shank's.
HAA_SIGN = {"LF": 1, "RF": 1, "LH": -1, "RH": -1}
LEG_SIGN = {"LF": 1, "RF": -1, "LH": 1, "RH": -1}
HAA_RANGE = {"LF": (-0.72, 0.49), "LH": (-0.72, 0.49), "RF": (-0.49, 0.72), "RH": (-0.49, 0.72)}

BASE: Inertia = (
    *(26.3732, (-0.017794, -0.000178, 0.008504)),
    (0.2167, 1.785, 1.834, 0.009224, 0.05893, -0.0001638),
)
INERTIA: dict[str, list[Inertia]] = {
    "HIP": [
        (2.781, (0.056661, -0.015294, -0.008298), (0.003296, 0.005044, 0.005727, -1.039e-05, 0.0001071, -0.0003195)),
        (2.781, (0.056763, 0.015294, -0.008298), (0.003296, 0.005046, 0.005729, -1.101e-05, -0.0001091, 0.0003195)),
    ],
    "THIGH": [
        (3.071, (0.030815, 0.000046, -0.245696), (0.02956, 0.0299, 0.004861, 4.429e-05, 0.004142, 9.448e-05)),
        (3.071, (0.030815, 0.000046, -0.245696), (0.02956, 0.0299, 0.004861, 4.44e-05, 0.004142, 0.0001148)),
    ],
    "SHANK": [
        (0.58842, (0.005462, -0.061253, -0.08066), (0.01016, 0.00881, 0.00155, -5.357e-05, -2.266e-05, -0.001819)),
        (0.58842, (0.005462, 0.061253, -0.08066), (0.01016, 0.00881, 0.00155, 5.357e-05, -2.266e-05, 0.001819)),
    ],
}

STANCE = [0.03, 0.4, -0.8, 0.03, -0.4, 0.8, -0.03, 0.4, -0.8, -0.03, -0.4, 0.8]
LOW = np.array([(HAA_RANGE[leg][0], -2.0, -2.5) for leg in LEGS]).ravel()
HIGH = np.array([(HAA_RANGE[leg][1], 2.0, 2.5) for leg in LEGS]).ravel()
POSES = np.concatenate(([np.zeros(12), STANCE, LOW, HIGH], np.random.default_rng(1).uniform(LOW, HIGH, (6, 12))))


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return scenes.load("anymal")


def shank_of(leg: str, haa: float, hfe: float, kfe: float) -> np.ndarray:
    """`[4, 4]`: base from shank, by the tables above."""
    hip = placed_by_quat(*HIP[leg]) @ turn(X, HAA_SIGN[leg] * haa)
    thigh = hip @ placed_by_quat(*THIGH[KIND[leg]]) @ turn(X, LEG_SIGN[leg] * hfe)
    return thigh @ placed_by_quat(*SHANK) @ turn(X, LEG_SIGN[leg] * kfe)


@pytest.mark.parametrize("pose", POSES)
def test_feet_are_where_the_table_puts_them(model: mujoco.MjModel, pose: np.ndarray) -> None:
    data = mujoco.MjData(model)
    for name, angle in zip(JOINTS, pose, strict=True):
        data.joint(name).qpos = angle
    mujoco.mj_kinematics(model, data)
    for leg, angles in zip(LEGS, pose.reshape(4, 3), strict=True):
        shank = shank_of(leg, *angles)
        for found, point in (
            (data.geom(f"{leg}_foot").xpos, FOOT_SPHERE[KIND[leg]]),
            (data.site(f"{leg}_FOOT").xpos, FOOT_FRAME[KIND[leg]]),
        ):
            np.testing.assert_allclose(found - data.qpos[:3], (shank @ [*point, 1])[:3], atol=1e-4, err_msg=leg)


def test_axes_and_joints_at_the_zero_pose(model: mujoco.MjModel) -> None:
    """In the base frame all HAA turn about +x, all others about +y, at mirrored places."""
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    for leg in LEGS:
        mirror = np.array((1 if leg[1] == "F" else -1, 1 if leg[0] == "L" else -1, 1))
        for joint, axis, place in (
            ("HAA", (1, 0, 0), (0.2999, 0.104, 0)),
            ("HFE", (0, 1, 0), (0.3598, 0.1878, 0)),
            ("KFE", (0, 1, 0), (0.3598, 0.2881, -0.285)),
        ):
            found = data.joint(f"{leg}_{joint}")
            np.testing.assert_allclose(found.xaxis, axis, atol=1e-5)
            np.testing.assert_allclose(found.xanchor - data.qpos[:3], mirror * place, atol=1e-4)


def test_soles_of_the_default_pose_are_543_mm_below_the_base(model: mujoco.MjModel) -> None:
    data = mujoco.MjData(model)
    data.qpos[7:] = STANCE
    mujoco.mj_kinematics(model, data)
    for leg in LEGS:
        assert data.qpos[2] - (data.geom(f"{leg}_foot").xpos[2] - 0.03) == pytest.approx(0.543, abs=1e-3)


def test_masses_and_inertias(model: mujoco.MjModel) -> None:
    assert model.body_mass.sum() == pytest.approx(52.135, rel=1e-3)
    table = {f"{leg}_{part}": rows[KIND[leg]] for leg in LEGS for part, rows in INERTIA.items()}
    check_inertias(model, {"base": BASE} | table)


def test_joints_and_servos_stand_in_the_order_of_actions(model: mujoco.MjModel) -> None:
    assert [model.joint(i).name for i in range(1, model.njnt)] == JOINTS
    assert model.actuator_trnid[:, 0].tolist() == list(range(1, 13))
    for name in JOINTS:
        joint, servo = model.joint(name), model.actuator(name)
        expected = HAA_RANGE[name[:2]] if name.endswith("HAA") else (-9.42478, 9.42478)
        assert joint.limited[0]
        assert tuple(joint.range) == expected, name
        assert joint.damping[0] == joint.armature[0] == joint.frictionloss[0] == joint.stiffness[0] == 0
        assert (servo.gear[0], servo.gainprm[0], *servo.biasprm[:3]) == (1, 85, 0, -85, -2), name
        assert tuple(servo.forcerange) == (-80, 80)
        assert tuple(servo.ctrlrange) == (-6.28, 6.28)


def test_collides_with_the_floor_only(model: mujoco.MjModel) -> None:
    solid = [model.geom(i) for i in range(model.ngeom) if model.geom(i).contype[0]]
    assert {geom.conaffinity[0] for geom in solid} == {0}
    assert sorted(geom.name for geom in solid) == sorted(
        ["left_trunk", "right_trunk", "lidar"]
        + [f"{leg}_{part}" for leg in LEGS for part in ("hip_drive", "knee_drive", "shank", "foot")]
    )
    assert model.geom("floor").conaffinity[0] == 1


def test_what_is_not_collided_with_lies_within_what_is(model: mujoco.MjModel) -> None:
    """The fact table's boxes have the support of the capsules that stand for them, in every direction or less."""
    directions = np.random.default_rng(2).normal(size=(2000, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)

    def capsules(*parts: tuple[float, Vector, Vector]) -> np.ndarray:
        supports = [r + np.maximum(directions @ np.array(a), directions @ np.array(b)) for r, a, b in parts]
        return np.max(supports, axis=0)

    def box(half: Vector, centre: Vector) -> np.ndarray:
        return directions @ np.array(centre) + np.abs(directions) @ np.array(half)

    trunk = capsules((0.09, (-0.5245, 0.07, 0), (0.5245, 0.07, 0)), (0.09, (-0.5245, -0.07, 0), (0.5245, -0.07, 0)))
    for half, centre in (
        ((0.29, 0.07, 0.09), (0, 0, 0)),
        ((0.055, 0.07, 0.09), (0.4695, 0, 0)),
        ((0.055, 0.07, 0.09), (-0.4695, 0, 0)),
        ((0.012, 0.012, 0.005), (0.2488, 0.00835, 0.05128)),
    ):
        assert (box(half, centre) <= trunk + 1e-9).all()
    thigh = capsules((0.065, (0, 0, 0), (0.08, 0, 0)), (0.05, (-0.0397, 0, -0.285), (0.1003, 0, -0.285)))
    assert (box((0.03, 0.0375, 0.14131), (0.03, 0, -0.14131)) <= thigh + 1e-9).all()


FOLDED = 1.8 * np.array(STANCE)
LEGS_UP = np.array([0, np.pi, 0] * 4)


@pytest.mark.parametrize(
    ("height", "quat", "joints", "expected"),
    [
        (0.3, (1, 0, 0, 0), FOLDED, set()),  # on its feet
        (0.18, (1, 0, 0, 0), FOLDED, {f"{leg}_THIGH" for leg in LEGS}),  # on its knees
        (0.089, (1, 0, 0, 0), LEGS_UP, {"base"}),  # on its belly
        (0.262, (0, 1, 0, 0), FOLDED, {"base"}),  # upside down, on the lidar
        (0.33, (0.5**0.5, -(0.5**0.5), 0, 0), FOLDED, {"LF_THIGH", "LH_THIGH"}),  # on its left side
    ],
)
def test_touch_sensors_tell_what_touches(
    model: mujoco.MjModel, height: float, quat: Vector, joints: np.ndarray, expected: set[str]
) -> None:
    data = mujoco.MjData(model)
    data.qpos[2], data.qpos[3:7], data.qpos[7:] = height, quat, joints
    mujoco.mj_forward(model, data)
    assert data.ncon > 0
    touched = {name for name in ("base", *(f"{leg}_THIGH" for leg in LEGS)) if data.sensor(name).data[0] > 1.0}
    assert touched == expected


def test_servos_hold_the_default_pose(model: mujoco.MjModel) -> None:
    data = mujoco.MjData(model)
    data.qpos[7:] = data.ctrl[:] = STANCE
    for _ in range(600):
        mujoco.mj_step(model, data)
    assert 0.5 < data.qpos[2] < 0.543  # 3 s after the drop: a little lower than with servos of infinite stiffness
    assert data.qpos[3] > 0.999
    assert data.ncon == 4
    height = data.qpos[2]
    for _ in range(1000):
        mujoco.mj_step(model, data)
    assert height - data.qpos[2] < 0.008  # in 5 s: feet creep outwards, because friction is soft
    assert sum(data.warning[i].number for i in range(len(data.warning))) == 0
