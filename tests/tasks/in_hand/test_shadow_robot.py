"""The Shadow hand beyond its fact table, which `test_robots.py` checks: coupling, collisions, sensors, behaviour."""

import mujoco
import numpy as np
import pytest
import scenes
import torch

from echelon.sim.cpu import CpuEngine

FINGERS = ("ff", "mf", "rf", "lf")
DIGITS = (*FINGERS, "th")


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return scenes.load("shadow_hand")


def posed(model: mujoco.MjModel, pose: np.ndarray) -> mujoco.MjData:
    data = mujoco.MjData(model)
    data.qpos[:24] = pose
    mujoco.mj_forward(model, data)
    return data


def test_the_cube(model: mujoco.MjModel) -> None:
    """5 cm at 567 kg/m³; the moment of inertia of a cube is m a²/6."""
    cube = model.body("cube")
    assert float(cube.mass[0]) == pytest.approx(567 * 0.05**3, rel=1e-3)
    np.testing.assert_allclose(cube.inertia, 567 * 0.05**5 / 6, rtol=1e-3)


def test_tendons_couple_distal_to_middle_joints(model: mujoco.MjModel) -> None:
    assert model.ntendon == len(FINGERS)
    data = mujoco.MjData(model)
    for finger in ("FF", "MF", "RF", "LF"):
        tendon = model.tendon(f"{finger}J1c")
        assert model.tendon_limited[tendon.id]
        np.testing.assert_allclose(model.tendon_range[tendon.id], (-0.001, 0.001))
        data.qpos[:24] = model.jnt_range[:24].mean(axis=1)
        data.joint(f"{finger}J0").qpos[0], data.joint(f"{finger}J1").qpos[0] = 1.0, 0.5
        mujoco.mj_forward(model, data)
        assert float(data.ten_length[tendon.id]) == pytest.approx(0.00705 * 1.0 - 0.00805 * 0.5, rel=1e-9)


TOUCHING = (
    *("th-ff", "th-mf", "th-rf", "th-lf", "ff-mf", "mf-rf", "rf-lf", "lf-mf"),  # distal links
    *("th-ffmiddle", "th-ffproximal", "th-mfproximal", "th-palm", "lf-rfmiddle", "rf-lfmiddle", "lfmiddle-rfmiddle"),
    *("ffproximal-mfproximal", "mfproximal-rfproximal", "rfproximal-lfproximal"),
)
"""The pairs of the hand that the reference lists; a finger's name alone is its distal link."""


def test_links_touch_each_other_where_the_reference_lists_it(model: mujoco.MjModel) -> None:
    def full(name: str) -> str:
        return name + "distal" if len(name) == 2 else name

    geoms = zip(model.pair_geom1, model.pair_geom2, strict=True)
    listed = {frozenset(model.geom(int(geom)).name for geom in pair) for pair in geoms}
    assert listed == {frozenset(map(full, pair.split("-"))) for pair in TOUCHING}
    assert len(listed) == model.npair == 18
    assert (model.pair_dim == 1).all()  # frictionless


def test_only_the_cube_and_the_hand_collide(model: mujoco.MjModel) -> None:
    kinds = {mujoco.mjtGeom.mjGEOM_CAPSULE, mujoco.mjtGeom.mjGEOM_BOX}
    meets = (model.geom_contype[:, None] & model.geom_conaffinity[None]) > 0
    partners = np.argwhere(meets | meets.T)
    cube = model.geom("cube").id
    assert all(cube in pair for pair in partners)
    touched = {int(other) for pair in partners for other in pair} - {cube}
    assert len(touched) == 19
    assert all(model.body(int(model.geom_bodyid[geom])).name not in ("world", "cube", "goal") for geom in touched)
    assert {int(model.geom_type[geom]) for geom in touched} <= {int(kind) for kind in kinds}


def test_sensors_are_in_blocks_of_the_observation(model: mujoco.MjModel) -> None:
    data = posed(model, model.jnt_range[:24].mean(axis=1))
    names = [model.sensor(index).name for index in range(model.nsensor)]
    assert names == [
        *(f"{digit}distal_{part}" for digit in DIGITS for part in ("pos", "quat", "linvel", "angvel")),
        *(f"{digit}distal_{part}" for digit in DIGITS for part in ("force", "torque")),
    ]
    assert model.nsensordata == 5 * 13 + 5 * 6
    for index, digit in enumerate(DIGITS):
        state = data.sensordata[13 * index : 13 * (index + 1)]
        body = data.body(f"{digit}distal")
        np.testing.assert_allclose(state[:3], body.xpos, atol=1e-12)
        np.testing.assert_allclose(state[3:7], body.xquat, atol=1e-12)


def test_the_hand_has_no_weight_and_the_cube_has(model: mujoco.MjModel) -> None:
    data = posed(model, np.zeros(24))
    for _ in range(9):
        mujoco.mj_step(model, data)
    np.testing.assert_allclose(data.qpos[:24], 0, atol=1e-9)
    # Semi-implicit steps: v = -g t.
    assert data.joint("cube").qvel[2] == pytest.approx(-9.81 * 9 * model.opt.timestep, rel=1e-3)


def test_a_flexed_middle_joint_pulls_the_distal_one_along(model: mujoco.MjModel) -> None:
    data = posed(model, np.zeros(24))
    data.joint("cube").qpos[2] = 5.0  # out of the way
    data.actuator("MFJ1").ctrl[0] = 1.0
    for _ in range(180):
        mujoco.mj_step(model, data)
    middle, distal = float(data.joint("MFJ1").qpos[0]), float(data.joint("MFJ0").qpos[0])
    assert middle == pytest.approx(1.0, abs=0.02)
    # The slack of 0.142 rad, and some give of the limit.
    assert distal == pytest.approx((0.00805 * middle - 0.001) / 0.00705, abs=0.02)


def test_a_cube_rests_on_the_open_hand(model: mujoco.MjModel) -> None:
    data = posed(model, np.zeros(24))
    data.joint("cube").qpos[2] = 0.527
    for _ in range(270):
        mujoco.mj_step(model, data)
    assert float(np.abs(data.joint("cube").qvel).max()) < 0.02
    assert data.ncon >= 3
    assert -2e-4 < float(data.contact.dist.min()) < 0  # penetrates by less than 0.2 mm


def test_random_targets_make_no_bad_states(model: mujoco.MjModel) -> None:
    num_sims, steps, substeps = 8, 200, 3
    engine = CpuEngine(model, num_sims, threads=1)
    generator = torch.Generator().manual_seed(0)
    low, high = torch.from_numpy(model.actuator_ctrlrange.copy()).unbind(1)
    bad = torch.zeros(num_sims, dtype=torch.bool)
    for _ in range(steps):
        targets = torch.rand(num_sims, model.nu, generator=generator, dtype=torch.float64)
        engine.ctrl.copy_(low + targets * (high - low))
        engine.step(substeps)
        bad |= engine.bad
    assert not bad.any()
    assert not engine.overflow.any()
    assert torch.isfinite(engine.sensordata).all()
    joints = engine.qpos[:, :24].numpy()
    assert (joints > model.jnt_range[:24, 0] - 0.05).all()
    assert (joints < model.jnt_range[:24, 1] + 0.05).all()
