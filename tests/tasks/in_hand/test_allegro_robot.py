"""The Allegro hand beyond its fact table, which `test_robots.py` checks: tips, collision filters, motors."""

import mujoco
import numpy as np
import pytest
import scenes
from tasks.frames import check_rests, inertia, inertia_of


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return scenes.load("allegro_hand")


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


def test_only_boxes_and_capsules(model: mujoco.MjModel) -> None:
    box, capsule = int(mujoco.mjtGeom.mjGEOM_BOX), int(mujoco.mjtGeom.mjGEOM_CAPSULE)
    assert set(model.geom_type) == {box, capsule}
    touching = model.geom_contype != 0
    assert touching.sum() == 17
    assert (model.geom_type[touching] == box).sum() == 1  # the palm
    assert not (model.geom_contype & model.geom_conaffinity).any()  # of the hand, only the listed pairs meet


def test_a_hand_at_rest_stays_and_touches_nothing(model: mujoco.MjModel) -> None:
    pose = np.array([*[0.0, 0.5, 0.5, 0.5] * 3, 0.8, 0.3, 0.3, 0.5])
    check_rests(model, pose, pose, steps=240, atol=1e-3)
    assert (model.body_gravcomp[1:] == 1).all()


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
