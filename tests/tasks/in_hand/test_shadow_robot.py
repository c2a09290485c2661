"""The Shadow hand against the numbers of its fact table: kinematics, masses, limits, gains, coupling, behaviour."""

import mujoco
import numpy as np
import pytest
import scenes
import torch
from tasks.frames import X, Y, placed_by_quat, turn

from echelon.sim.cpu import CpuEngine

TOLERANCE = 1e-4  # m
FINGERS = ("ff", "mf", "rf", "lf")
DIGITS = (*FINGERS, "th")

# The fact table. Bodies: parent, origin in it (m), turn in it (w x y z), mass (kg), centre of mass (m), and the moments
# of inertia Ixx Iyy Izz about it (kg m²), in the body's axes.
Body = tuple[str, tuple[float, ...], tuple[float, ...], float, tuple[float, ...], tuple[float, ...]]
SAME, ZERO, SMALL, LARGE = (1.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0), (1e-5,) * 3, (1e-3,) * 3


def finger_bodies(finger: str, parent: str, origin: tuple[float, ...], middle_com: float = 0.012) -> dict[str, Body]:
    return {
        f"{finger}knuckle": (parent, origin, SAME, 0.008, ZERO, SMALL),
        f"{finger}proximal": (f"{finger}knuckle", ZERO, SAME, 0.014, (0, 0, 0.023), SMALL),
        f"{finger}middle": (f"{finger}proximal", (0, 0, 0.045), SAME, 0.012, (0, 0, middle_com), SMALL),
        f"{finger}distal": (f"{finger}middle", (0, 0, 0.025), SAME, 0.010, (0, 0, 0.015), SMALL),
    }


BODIES: dict[str, Body] = {
    "hand_mount": ("world", (0, 0, 0.5), (0, 0, -0.7071067811865476, 0.7071067811865476), 0.1, ZERO, LARGE),
    "forearm": ("hand_mount", (0, 0.01, 0), SAME, 4.0, (0.001, -0.002, 0.29), (0.01, 0.009998, 0.007503)),
    "wrist": ("forearm", (0, 0, 0.256), SAME, 0.3, (0.003, 0, 0.016), LARGE),
    "palm": ("wrist", (0, 0, 0.034), SAME, 0.3, (0.006, 0, 0.036), LARGE),
    **finger_bodies("ff", "palm", (0.033, 0, 0.095), middle_com=0.011),
    **finger_bodies("mf", "palm", (0.011, 0, 0.099)),
    **finger_bodies("rf", "palm", (-0.011, 0, 0.095)),
    "lfmetacarpal": ("palm", (-0.017, 0, 0.044), SAME, 0.075, (-0.014, 0.001, 0.014), SMALL),
    **finger_bodies("lf", "lfmetacarpal", (-0.017, 0, 0.044)),
    "thbase": ("palm", (0.034, -0.009, 0.029), (0.923956, 0, 0.382499, 0), 0.01, ZERO, SMALL),
    "thproximal": ("thbase", ZERO, SAME, 0.016, (0, 0, 0.017), SMALL),
    "thhub": ("thproximal", (0, 0, 0.038), SAME, 0.002, ZERO, SMALL),
    "thmiddle": ("thhub", ZERO, SAME, 0.016, (0, 0, 0.016), SMALL),
    "thdistal": ("thmiddle", (0, 0, 0.032), SAME, 0.016, (0, 0, 0.016), SMALL),
}
TOTAL_MASS = 5.011  # kg, without the cube
TIPS = dict.fromkeys(FINGERS, (0.0, 0.0, 0.026)) | {"th": (0.0, 0.0, 0.0275)}

# Joints in the order of the joint blocks of the observation: body, axis, range (rad), gain (N m/rad; 0: no servo),
# torque limit (N m).
Joint = tuple[str, tuple[float, float, float], tuple[float, float], float, float]


def finger_joints(finger: str) -> dict[str, Joint]:
    name = finger.upper()
    return {
        f"{name}J3": (f"{finger}knuckle", Y, (-0.349, 0.349), 1, 0.9),
        f"{name}J2": (f"{finger}proximal", X, (0, 1.571), 1, 0.9),
        f"{name}J1": (f"{finger}middle", X, (0, 1.571), 1, 0.7245),
        f"{name}J0": (f"{finger}distal", X, (0, 1.571), 0, 0),
    }


JOINTS: dict[str, Joint] = {
    "WRJ1": ("wrist", Y, (-0.489, 0.14), 5, 4.785),
    "WRJ0": ("palm", X, (-0.698, 0.489), 5, 2.175),
    **finger_joints("ff"),
    **finger_joints("mf"),
    **finger_joints("rf"),
    "LFJ4": ("lfmetacarpal", (0.570977, 0, 0.820966), (0, 0.785), 1, 0.9),
    **finger_joints("lf"),
    "THJ4": ("thbase", (0, 0, -1), (-1.047, 1.047), 1, 2.3722),
    "THJ3": ("thproximal", X, (0, 1.222), 1, 1.45),
    "THJ2": ("thhub", X, (-0.209, 0.209), 1, 0.99),
    "THJ1": ("thmiddle", Y, (-0.524, 0.524), 1, 0.99),
    "THJ0": ("thdistal", Y, (-1.571, 0), 1, 0.81),
}
ACTIONS = "WRJ1 WRJ0 FFJ3 FFJ2 FFJ1 MFJ3 MFJ2 MFJ1 RFJ3 RFJ2 RFJ1 LFJ4 LFJ3 LFJ2 LFJ1 THJ4 THJ3 THJ2 THJ1 THJ0"
LOW, HIGH = np.array([joint[2] for joint in JOINTS.values()]).T

# Ten configurations as fractions of the ranges: both ends, the middle, one wave through the joints per remaining row.
PHASES = np.arange(1, 8)[:, None] * np.arange(1, 25)
FRACTIONS = np.concatenate(
    (np.zeros((1, 24)), np.ones((1, 24)), np.full((1, 24), 0.5), 0.5 + 0.5 * np.sin(1.7 * PHASES))
)
POSES = LOW + FRACTIONS * (HIGH - LOW)


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return scenes.load("shadow_hand")


def frame_of(body: str, angles: dict[str, float]) -> np.ndarray:
    """`[4, 4]`: the body's frame in the world, by a chain of transforms from the tables above."""
    if body == "world":
        return np.eye(4)
    parent, origin, quat, *_ = BODIES[body]
    frame = frame_of(parent, angles) @ placed_by_quat(origin, quat)
    for name, (owner, axis, *_) in JOINTS.items():
        if owner == body:
            frame = frame @ turn(axis, angles[name])
    return frame


def posed(model: mujoco.MjModel, pose: np.ndarray) -> mujoco.MjData:
    data = mujoco.MjData(model)
    for name, angle in zip(JOINTS, pose, strict=True):
        data.joint(name).qpos[0] = angle
    mujoco.mj_forward(model, data)
    return data


@pytest.mark.parametrize("row", range(len(POSES)))
def test_palm_and_fingertips_are_where_the_fact_table_puts_them(model: mujoco.MjModel, row: int) -> None:
    data = posed(model, POSES[row])
    angles = dict(zip(JOINTS, POSES[row], strict=True))
    for body in ("palm", *(f"{digit}distal" for digit in DIGITS)):
        frame = frame_of(body, angles)
        np.testing.assert_allclose(data.body(body).xpos, frame[:3, 3], atol=TOLERANCE)
        # A frame that is off by this much moves a point 0.1 m away by 0.1 mm.
        np.testing.assert_allclose(data.body(body).xmat.reshape(3, 3), frame[:3, :3], atol=1e-3)
    for digit in DIGITS:
        tip = frame_of(f"{digit}distal", angles) @ (*TIPS[digit], 1.0)
        np.testing.assert_allclose(data.site(f"{digit}tip").xpos, tip[:3], atol=TOLERANCE)


def test_masses_and_inertias(model: mujoco.MjModel) -> None:
    hand = [model.body(name).id for name in BODIES]
    assert float(model.body_mass[hand].sum()) == pytest.approx(TOTAL_MASS, rel=1e-3)
    for name, (_, _, _, mass, com, moments) in BODIES.items():
        body = model.body(name)
        assert float(body.mass[0]) == pytest.approx(mass, rel=1e-3)
        np.testing.assert_allclose(body.ipos, com, atol=TOLERANCE)
        np.testing.assert_allclose(sorted(body.inertia), sorted(moments), rtol=2e-3, err_msg=name)
    # A cube of 5 cm at 567 kg/m³; the moment of inertia of a cube is m a²/6.
    cube = model.body("cube")
    assert float(cube.mass[0]) == pytest.approx(567 * 0.05**3, rel=1e-3)
    np.testing.assert_allclose(cube.inertia, 567 * 0.05**5 / 6, rtol=1e-3)


def test_joints_are_those_of_the_table_in_its_order(model: mujoco.MjModel) -> None:
    assert [model.joint(index).name for index in range(model.njnt)] == [*JOINTS, "cube"]
    for name, (body, axis, limits, *_) in JOINTS.items():
        joint = model.joint(name)
        assert model.body(int(joint.bodyid[0])).name == body
        assert joint.limited[0]
        np.testing.assert_allclose(joint.axis, axis, atol=1e-5)
        np.testing.assert_allclose(joint.range, limits)
        wrist = name.startswith("WR")
        assert float(joint.damping[0]) == (0.5 if wrist else 0.1)
        assert float(joint.armature[0]) == (0.005 if wrist else 0.001)


def test_actuators_are_those_of_the_table_in_the_order_of_the_action(model: mujoco.MjModel) -> None:
    names = [model.actuator(index).name for index in range(model.nu)]
    assert " ".join(names) == ACTIONS
    assert names == [name for name, joint in JOINTS.items() if joint[3]]
    for name in names:
        _, _, limits, gain, torque = JOINTS[name]
        actuator = model.actuator(name)
        assert model.joint(int(actuator.trnid[0])).name == name
        assert float(actuator.gainprm[0]) == gain
        np.testing.assert_allclose(actuator.biasprm[:3], (0, -gain, 0))
        np.testing.assert_allclose(actuator.ctrlrange, limits)
        np.testing.assert_allclose(actuator.forcerange, (-torque, torque))


def test_tendons_couple_distal_to_middle_joints(model: mujoco.MjModel) -> None:
    assert model.ntendon == len(FINGERS)
    data = mujoco.MjData(model)
    for finger in ("FF", "MF", "RF", "LF"):
        tendon = model.tendon(f"{finger}J1c")
        assert model.tendon_limited[tendon.id]
        np.testing.assert_allclose(model.tendon_range[tendon.id], (-0.001, 0.001))
        data.qpos[:24] = POSES[5]
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
    assert all(model.body(int(model.geom_bodyid[geom])).name in BODIES for geom in touched)
    assert {int(model.geom_type[geom]) for geom in touched} <= {int(kind) for kind in kinds}


def test_sensors_are_in_blocks_of_the_observation(model: mujoco.MjModel) -> None:
    data = posed(model, POSES[4])
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
    assert (joints > LOW - 0.05).all()
    assert (joints < HIGH + 0.05).all()
