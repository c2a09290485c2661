"""Both hands beyond their fact tables, which `test_robots.py` of all tasks checks: collisions, motors, sensors."""

import mujoco
import numpy as np
import pytest
from tasks.robots import inertia, inertia_of, load, posed, step, touching

ALLEGRO, SHADOW = load("allegro_hand"), load("shadow_hand")
BOX, CAPSULE = int(mujoco.mjtGeom.mjGEOM_BOX), int(mujoco.mjtGeom.mjGEOM_CAPSULE)


def test_last_links_carry_their_tips() -> None:
    """A tip is a ball of 0.021 kg at the link's origin."""
    for body, mass, place, diagonal, xy in (
        ("middle_link_3", 0.0096, (0.019334, 0.000432, 0.0), (6.399e-07, 3.385e-06, 3.286e-06), -3.553e-07),
        ("thumb_link_3", 0.0388, (0.021964, -0.000458, 0.0), (3.359e-06, 1.87e-05, 1.831e-05), -1.313e-06),
    ):
        centre, total = np.array(place), np.zeros((3, 3))
        joint = mass / (mass + 0.021) * centre
        for part, arm, own in ((mass, centre - joint, inertia(*diagonal, xy)), (0.021, -joint, 9.68e-7 * np.eye(3))):
            total += own + part * (arm @ arm * np.eye(3) - np.outer(arm, arm))
        np.testing.assert_allclose(ALLEGRO.body(body).ipos, joint, rtol=0, atol=1e-7)
        np.testing.assert_allclose(inertia_of(ALLEGRO, body), total, rtol=1e-4, atol=1e-11)


def test_allegro_touches_with_a_box_and_capsules_and_keeps_to_its_motors_speed() -> None:
    assert set(ALLEGRO.geom_type) == {BOX, CAPSULE}
    solid = ALLEGRO.geom_contype != 0
    assert solid.sum() == 17
    assert (ALLEGRO.geom_type[solid] == BOX).sum() == 1  # the palm
    assert not touching(ALLEGRO)  # of the hand, only the listed pairs meet
    data = posed(ALLEGRO, [0.5], 12)
    data.ctrl[:] = data.qpos
    data.ctrl[1] = 1.7  # far away: the servo saturates at 0.5 N m
    speeds = []
    for _ in range(24):
        step(ALLEGRO, data, 1)
        speeds.append(data.joint("index_joint_1").qvel[0])
    assert 6.1 < max(speeds) < 6.283
    # 0.5 N m = c · (6.283 rad/s)³
    np.testing.assert_allclose(ALLEGRO.dof_dampingpoly, np.tile([0, 0.5 / 6.283**3], (16, 1)), rtol=1e-3)


def test_shadows_cube() -> None:
    """5 cm at 567 kg/m³; the moment of inertia of a cube is m a²/6. It has weight, the hand has none; it rests on the
    open hand."""
    cube = SHADOW.body("cube")
    assert float(cube.mass[0]) == pytest.approx(567 * 0.05**3, rel=1e-3)
    np.testing.assert_allclose(cube.inertia, 567 * 0.05**5 / 6, rtol=1e-3)
    data = posed(SHADOW, np.zeros(24))
    step(SHADOW, data, 9)
    np.testing.assert_allclose(data.qpos[:24], 0, atol=1e-9)
    # Semi-implicit steps: v = -g t.
    assert data.joint("cube").qvel[2] == pytest.approx(-9.81 * 9 * SHADOW.opt.timestep, rel=1e-3)
    data = posed(SHADOW, np.zeros(24))
    data.joint("cube").qpos[2] = 0.527
    step(SHADOW, data, 270)
    assert float(np.abs(data.joint("cube").qvel).max()) < 0.02
    assert data.ncon >= 3
    assert -2e-4 < float(data.contact.dist.min()) < 0  # penetrates by less than 0.2 mm


def test_shadows_tendons_couple_distal_to_middle_joints() -> None:
    assert SHADOW.ntendon == 4
    data = mujoco.MjData(SHADOW)
    for finger in ("FF", "MF", "RF", "LF"):
        tendon = SHADOW.tendon(f"{finger}J1c")
        assert SHADOW.tendon_limited[tendon.id]
        np.testing.assert_allclose(SHADOW.tendon_range[tendon.id], (-0.001, 0.001))
        data.qpos[:24] = SHADOW.jnt_range[:24].mean(axis=1)
        data.joint(f"{finger}J0").qpos[0], data.joint(f"{finger}J1").qpos[0] = 1.0, 0.5
        mujoco.mj_forward(SHADOW, data)
        assert float(data.ten_length[tendon.id]) == pytest.approx(0.00705 * 1.0 - 0.00805 * 0.5, rel=1e-9)
    data = posed(SHADOW, np.zeros(24))
    data.joint("cube").qpos[2] = 5.0  # out of the way
    data.actuator("MFJ1").ctrl[0] = 1.0
    step(SHADOW, data, 180)
    middle, distal = float(data.joint("MFJ1").qpos[0]), float(data.joint("MFJ0").qpos[0])
    assert middle == pytest.approx(1.0, abs=0.02)
    # A flexed middle joint pulls the distal one along, but for the slack of 0.142 rad, and some give of the limit.
    assert distal == pytest.approx((0.00805 * middle - 0.001) / 0.00705, abs=0.02)


LISTED = (
    *("th-ff", "th-mf", "th-rf", "th-lf", "ff-mf", "mf-rf", "rf-lf", "lf-mf"),  # distal links
    *("th-ffmiddle", "th-ffproximal", "th-mfproximal", "th-palm", "lf-rfmiddle", "rf-lfmiddle", "lfmiddle-rfmiddle"),
    *("ffproximal-mfproximal", "mfproximal-rfproximal", "rfproximal-lfproximal"),
)
"""The pairs of the Shadow hand that the reference lists; a finger's name alone is its distal link."""


def test_shadows_links_meet_the_cube_and_each_other_where_the_reference_lists_it() -> None:
    def full(name: str) -> str:
        return name + "distal" if len(name) == 2 else name

    geoms = zip(SHADOW.pair_geom1, SHADOW.pair_geom2, strict=True)
    listed = {frozenset(SHADOW.geom(int(geom)).name for geom in pair) for pair in geoms}
    assert listed == {frozenset(map(full, pair.split("-"))) for pair in LISTED}
    assert len(listed) == SHADOW.npair == 18
    assert (SHADOW.pair_dim == 1).all()  # frictionless
    met = touching(SHADOW)
    assert all("cube" in pair for pair in met)
    touched = [SHADOW.geom(name) for pair in met for name in pair - {"cube"}]
    assert len(touched) == 19
    assert all(SHADOW.body(int(geom.bodyid[0])).name not in ("world", "cube", "goal") for geom in touched)
    assert {int(geom.type[0]) for geom in touched} <= {BOX, CAPSULE}
