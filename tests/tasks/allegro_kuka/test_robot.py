"""The iiwa 7 with the Allegro hand beyond its fact table, which `test_robots.py` checks: sensors, pose, collisions."""

import mujoco
import numpy as np
import pytest
from tasks.allegro_kuka.kuka_chain import ARM_LIMITS, DEFAULT, HAND_LIMITS, last_link
from tasks.frames import check_rests

from echelon.tasks.allegro_kuka.scene import build


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return build("kuka_allegro.xml")


def test_palm_sensors_are_those_of_the_last_link(model: mujoco.MjModel) -> None:
    """Velocities by differences of the chain over 1e-6 s."""
    data = mujoco.MjData(model)
    pose = np.array([*ARM_LIMITS, *HAND_LIMITS]) @ (0.6, 0.4)
    data.qpos[:], data.qvel[:] = pose, np.linspace(-1, 1, 23)
    mujoco.mj_forward(model, data)
    before, after = (last_link(pose + sign * 5e-7 * data.qvel) for sign in (-1, 1))
    np.testing.assert_allclose(data.sensor("palm_linvel").data, (after - before)[:3, 3] / 1e-6, rtol=0, atol=1e-4)
    spin = (after - before)[:3, :3] / 1e-6 @ last_link(pose)[:3, :3].T
    np.testing.assert_allclose(data.sensor("palm_angvel").data, [spin[2, 1], spin[0, 2], spin[1, 0]], rtol=0, atol=1e-4)
    matrix = np.zeros(9)
    mujoco.mju_quat2Mat(matrix, data.sensor("palm_quat").data)
    np.testing.assert_allclose(matrix.reshape(3, 3), last_link(pose)[:3, :3], rtol=0, atol=1e-4)


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
    assert (model.body_gravcomp[1:] == 1).all()
    assert not model.dof_dampingpoly.any()
