"""ANYmal C beyond its fact table, which `test_robots.py` checks: collisions, touch sensors, how it stands."""

import mujoco
import numpy as np
import pytest
import scenes
from tasks.frames import Vector

LEGS = ("LF", "LH", "RF", "RH")
STANCE = [0.03, 0.4, -0.8, 0.03, -0.4, 0.8, -0.03, 0.4, -0.8, -0.03, -0.4, 0.8]


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return scenes.load("anymal")


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
