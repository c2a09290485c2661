"""The humanoid beyond its fact table, which `test_robots.py` checks: collisions, stops, weight on the feet."""

import mujoco
import pytest
import scenes


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return scenes.load("humanoid")


def test_soles_are_1285_mm_below_the_torso(model: mujoco.MjModel) -> None:
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    assert data.qpos[2] - (data.site("right_foot").xpos[2] - 0.027) == pytest.approx(1.285, abs=1e-3)


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
        beyond.append(data.joint("right_knee").qpos[0] - 0.03491)
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
