"""ANYmal C beyond its fact table, which `test_robots.py` checks: collisions, touch sensors, how it stands."""

import numpy as np
import pytest
from tasks.robots import load, pairs, posed, step, touching

LEGS = ("LF", "LH", "RF", "RH")
STANCE = np.array([0.03, 0.4, -0.8, 0.03, -0.4, 0.8, -0.03, 0.4, -0.8, -0.03, -0.4, 0.8])
MODEL = load("anymal")


def test_soles_of_the_default_pose_are_543_mm_below_the_base_and_touch_the_floor_only() -> None:
    data = posed(MODEL, STANCE, 7)
    for leg in LEGS:
        assert data.qpos[2] - (data.geom(f"{leg}_foot").xpos[2] - 0.03) == pytest.approx(0.543, abs=1e-3)
    legs = [f"{leg}_{part}" for leg in LEGS for part in ("hip_drive", "knee_drive", "shank", "foot")]
    assert touching(MODEL) == pairs(*(f"{name}, floor" for name in ("left_trunk", "right_trunk", "lidar", *legs)))


def test_touch_sensors_tell_what_touches_and_servos_hold_the_default_pose() -> None:
    folded, legs_up, side = 1.8 * STANCE, np.array([0, np.pi, 0] * 4), 0.5**0.5
    for height, quat, joints, expected in (
        (0.3, (1, 0, 0, 0), folded, set()),  # on its feet
        (0.18, (1, 0, 0, 0), folded, {f"{leg}_THIGH" for leg in LEGS}),  # on its knees
        (0.089, (1, 0, 0, 0), legs_up, {"base"}),  # on its belly
        (0.262, (0, 1, 0, 0), folded, {"base"}),  # upside down, on the lidar
        (0.33, (side, -side, 0, 0), folded, {"LF_THIGH", "LH_THIGH"}),  # on its left side
    ):
        data = posed(MODEL, [height, *quat, *joints], 2)
        assert data.ncon > 0
        touched = {name for name in ("base", *(f"{leg}_THIGH" for leg in LEGS)) if data.sensor(name).data[0] > 1.0}
        assert touched == expected
    data = posed(MODEL, STANCE, 7)
    data.ctrl[:] = STANCE
    step(MODEL, data, 600)
    assert 0.5 < data.qpos[2] < 0.543  # 3 s after the drop: a little lower than with servos of infinite stiffness
    assert data.qpos[3] > 0.999
    assert data.ncon == 4
    height = data.qpos[2]
    step(MODEL, data, 1000)
    assert height - data.qpos[2] < 0.008  # in 5 s: feet creep outwards, because friction is soft
    assert sum(data.warning[i].number for i in range(len(data.warning))) == 0
