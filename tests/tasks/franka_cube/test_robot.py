"""The Panda beyond its fact table, which `test_robots.py` checks: drag, table and cubes, collisions, grip."""

import mujoco
import numpy as np
import pytest
import scenes
from tasks.franka_cube.states import HOME
from tasks.robots import load, pairs, posed, step, touching

DEFAULT = np.array([*HOME, 0.035, 0.035])


def test_drag_stand_table_and_cubes() -> None:
    model = load("panda")
    data = posed(model, DEFAULT)
    speed, torque = np.array([2.175] * 4 + [2.61] * 3), np.array([87.0] * 4 + [12.0] * 3)
    for factor, share in ((2.5, 1.0), (1.25, 0.125), (-2.5, -1.0)):
        data.qvel[:7] = factor * speed
        mujoco.mj_forward(model, data)
        np.testing.assert_allclose(data.qfrc_damper[:7], -share * torque, rtol=1e-3)
    assert not data.qfrc_damper[7:].any()
    # The default pose on its stand has the grip point over the table.
    model = load("franka_stack")
    data = posed(model, DEFAULT, 14)
    np.testing.assert_allclose(data.body("panda/hand").xpos, (-0.005, 0, 1.320), atol=1e-3)
    np.testing.assert_allclose(data.site("panda/grip").xpos, (0.008, 0, 1.218), atol=1e-3)
    quat = data.sensor("panda/grip_quat").data
    np.testing.assert_allclose(quat * np.sign(quat[1]), (0, 0.998, 0, 0.064), atol=1e-3)
    np.testing.assert_allclose(model.geom("table").pos, (0, 0, 1.0))
    np.testing.assert_allclose(model.geom("table").size, (0.6, 0.6, 0.025))
    np.testing.assert_allclose(model.body("panda/link0").pos, (-0.45, 0, 1.125))
    for name, edge, mass in (("cube_a", 0.05, 0.125), ("cube_b", 0.07, 0.343)):
        np.testing.assert_allclose(model.geom(name).size, edge / 2)
        assert model.body(name).mass[0] == pytest.approx(mass, rel=1e-6)
        np.testing.assert_allclose(model.body(name).inertia, mass * edge**2 / 6)


SOLID = ("panda/hand", *(f"panda/{side}_{part}" for side in ("left", "right") for part in ("knuckle", "web", "tip")))


@pytest.mark.parametrize(("scene", "cubes"), [("franka_push", ("cube_a",)), ("franka_stack", ("cube_a", "cube_b"))])
def test_what_can_touch_what(scene: str, cubes: tuple[str, ...]) -> None:
    model = load(scene)
    expected = {f"{cube}, {thing}" for cube in cubes for thing in (*SOLID, "table", "floor")}
    expected |= {f"{thing}, table" for thing in SOLID} | ({"cube_a, cube_b"} if len(cubes) == 2 else set())
    assert touching(model) == pairs(*expected)
    assert model.opt.disableflags & int(mujoco.mjtDisableBit.mjDSBL_NATIVECCD)  # box against box stays a primitive pair


def test_a_shut_gripper_holds_a_cube_without_sinking_in_or_letting_go() -> None:
    model = scenes.load("franka_push")
    model.dof_damping[6:13] = 1e4  # the arm stands
    data = posed(model, DEFAULT, 7)
    data.qpos[:3], data.qpos[3:7] = data.site("panda/grip").xpos, data.sensor("panda/grip_quat").data
    step(model, data, 60)
    held = data.qpos[:3] - data.site("panda/grip").xpos
    step(model, data, 240)
    np.testing.assert_allclose(data.qpos[-2:], 0.025, atol=5e-4)
    assert np.linalg.norm(data.qpos[:3] - data.site("panda/grip").xpos - held) < 4e-4
    assert np.abs(data.qvel[6:]).max() < 1e-3
    wrench, force = np.zeros(6), 0.0
    for i in range(data.ncon):
        mujoco.mj_contactForce(model, data, i, wrench)
        force += wrench[0]
    assert force == pytest.approx(2 * 1000 * 0.025, rel=0.02)  # of both fingers, 25 N each
