"""The humanoid beyond its fact table, which `test_robots.py` checks: collisions, stops, weight on the feet."""

import mujoco
import pytest
from tasks.robots import load, posed, step, touching

MODEL = load("humanoid")


def test_collision_pairs() -> None:
    met = touching(MODEL)

    def collides(one: str, other: str) -> bool:
        return frozenset((one, other)) in met

    solid = [MODEL.geom(i).name for i in range(MODEL.ngeom) if MODEL.geom(i).contype[0]]
    assert len(solid) == 19  # the geoms of the fact table; the floor waits to be collided with
    assert all(collides(name, "floor") for name in solid)
    right, left = ("right_thigh", "right_shin", "right_foot_inner"), ("left_thigh", "left_foot_outer")
    assert all(collides(a, b) for a in right for b in left)
    arms, hands = ("right_hand", "left_lower_arm"), ("right_hand", "left_hand")
    assert all(collides(a, b) for a in arms for b in ("torso", "pelvis", "left_thigh"))
    assert not any(collides(a, b) for a in right for b in (*right, "torso", "pelvis"))
    assert not any(collides(a, b) for a in hands for b in ("head", "left_shin", "left_hand"))
    assert not any(collides(name, "torso") for name in ("right_upper_arm", "head", "lower_waist"))


def test_stops_stop_a_flung_leg_and_the_weight_is_on_the_feet() -> None:
    """A knee at 20 rad/s passes its stop by what it moves in a physics step, about 0.12 rad, and comes back."""
    data = mujoco.MjData(MODEL)
    data.qpos[2] = 3.0
    data.joint("right_knee").qvel = 20.0
    data.actuator("right_knee").ctrl = 1.0
    beyond = []
    for _ in range(40):
        step(MODEL, data, 1)
        beyond.append(data.joint("right_knee").qpos[0] - 0.03491)
    assert 0.0 < max(beyond) < 0.13
    assert max(beyond[20:]) < 0.01
    data = posed(MODEL, [])
    assert data.qpos[2] - (data.site("right_foot").xpos[2] - 0.027) == pytest.approx(1.285, abs=1e-3)
    data.qpos[2] = 1.285
    step(MODEL, data, 20)  # about 0.1 s: settled on its feet, not yet fallen
    # The sensors read what the shins exert on the feet: the weight above them, downwards.
    load = data.sensor("right_foot_force").data[2] + data.sensor("left_foot_force").data[2]
    assert load == pytest.approx(-9.81 * (40.844 - 2 * 1.13114), rel=0.1)
