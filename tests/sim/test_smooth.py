"""Smooth dynamics and integration by two kernels, against MuJoCo Warp's own functions from identical states.

Warp's CPU blocks run the text of the CUDA kernels, so all but speed is tested without a GPU.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import mujoco
import numpy as np
import pytest
import torch
from gpu import MARKS

from echelon import preset, tasks

pytest.importorskip("mujoco_warp", reason="needs MuJoCo Warp, the extra [gpu]")
import mujoco_warp as mjw
import warp as wp

from echelon.sim.smooth import SmoothDynamics, unsupported

WORLDS = 3
LEAN = ("subtree_com", "cdof", "M", "qfrc_smooth", "ten_J", "ten_length")
POSES = (
    "xpos",
    "xquat",
    "xmat",
    "xipos",
    "ximat",
    "xanchor",
    "xaxis",
    "geom_xpos",
    "geom_xmat",
    "site_xpos",
    "site_xmat",
    "subtree_com",
    "cinert",
    "cdof",
    "cvel",
    "cdof_dot",
    "ten_J",
    "ten_length",
)
FORCES = (
    "crb",
    "M",
    "cacc",
    "cfrc_int",
    "qfrc_spring",
    "qfrc_damper",
    "qfrc_gravcomp",
    "qfrc_passive",
    "qfrc_bias",
    "qfrc_actuator",
    "qfrc_smooth",
    "actuator_length",
    "actuator_velocity",
    "actuator_force",
    "ten_velocity",
)
STATE = ("qpos", "qvel", "qacc_warmstart", "time", "overflow")
SCENE = """
<mujoco>
  <option integrator="{integrator}" timestep="0.004"><flag contact="disable"/></option>
  <default><joint armature="0.01"/></default>
  <worldbody>
    <geom type="plane" size="1 1 1"/>
    <body name="target" mocap="true" pos="0 0 2"><geom size="0.1" contype="0"/><site name="mark" pos="0.1 0 0"/></body>
    <body name="trunk" pos="0 0 1">
      <freejoint/>
      <geom type="box" size="0.2 0.1 0.1" pos="0.05 0 0.02"/>
      <body pos="0.3 0 0" gravcomp="0.7">
        <joint name="shoulder" type="ball" damping="0.3"/>
        <geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.04"/>
        <body pos="0.3 0 0" euler="0 20 0">
          <joint name="bend" axis="0 1 0" pos="0.01 0 0" stiffness="3" springref="0.2" damping="0.2"
                 actuatorfrcrange="-0.4 0.4"/>
          <joint name="twist" axis="1 0 0" stiffness="1" frictionloss="0.1"/>
          <joint name="reach" type="slide" axis="1 0 0" range="-0.1 0.2" stiffness="50" damping="4"/>
          <geom type="capsule" fromto="0 0 0 0.2 0 0" size="0.03"/>
          <site name="tip" pos="0.2 0 0" euler="0 0 30"/>
          <body pos="0.2 0 0"><geom size="0.03" mass="0.1"/></body>
        </body>
      </body>
      <body pos="-0.3 0 0" gravcomp="1">
        <joint name="tail" axis="0 1 0" damping="0.1"/>
        <geom type="capsule" fromto="0 0 0 -0.3 0 0" size="0.03"/>
      </body>
    </body>
    <body name="off centre" pos="1 0 1">
      <freejoint/>
      <geom type="box" size="0.1 0.05 0.2" pos="0.06 0.03 0.02" euler="10 20 30"/>
      <body pos="0 0 0.1"><geom size="0.05"/></body>
    </body>
    <body name="centred" pos="-1 0 1"><freejoint/><geom type="ellipsoid" size="0.1 0.2 0.05"/></body>
    <body pos="0 1 1"><joint name="wheel"/><geom type="cylinder" size="0.1 0.02"/></body>
  </worldbody>
  <tendon><fixed name="pair"><joint joint="tail" coef="0.5"/><joint joint="bend" coef="-1.5"/></fixed></tendon>
  <actuator>
    <position joint="bend" kp="20" kv="0.5" gear="2"/>
    <motor joint="bend" gear="-0.5" ctrlrange="-1 1"/>
    <velocity joint="tail" kv="0.3" forcerange="-0.05 0.05"/>
    <general joint="reach" gaintype="affine" gainprm="2 0.5 -0.3" biastype="affine" biasprm="0.1 -1 -0.2"
             ctrlrange="-0.5 0.5"/>
    <motor joint="wheel"/>
  </actuator>
</mujoco>
"""


@pytest.fixture(scope="module", params=["cpu", pytest.param("cuda", marks=MARKS)])
def device(request: pytest.FixtureRequest) -> str:
    return request.param


@contextmanager
def on(device: str) -> Iterator[None]:
    """Run Warp on a device, on the CPU with blocks of 32 threads."""
    wp.config.log_level = wp.LOG_WARNING
    wp.config.enable_cpu_blocks = device == "cpu"
    try:
        with wp.ScopedDevice(device):
            yield
    finally:
        wp.config.enable_cpu_blocks = False


def modelled(model: mujoco.MjModel) -> Any:
    m = mjw.put_model(model)
    m.opt.warn_overflow, m.opt.run_qacc_smooth = 0, False
    return m


def vary(m: Any, field: str, rows: int = WORLDS) -> None:
    """Give worlds values of their own of a model field."""
    shared = getattr(m, field)
    values = np.concatenate([shared.numpy() * (1.0 + 0.1 * row) for row in range(rows)]).astype(np.float32)
    setattr(m, field, wp.array(values, dtype=shared.dtype))


def filled(
    model: mujoco.MjModel, state: dict[str, np.ndarray], contacts: int | None = 4, constraints: int | None = 20
) -> Any:
    d = mjw.make_data(model, nworld=WORLDS, nconmax=contacts, njmax=constraints)
    for name, values in state.items():
        if values.size:
            getattr(d, name).assign(values.astype(np.float32))
    return d


def random_state(model: mujoco.MjModel, seed: int = 0) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(seed)
    qpos = np.empty((WORLDS, model.nq))
    for world in range(WORLDS):
        moved = model.qpos0.copy()
        mujoco.mj_integratePos(model, moved, draw.normal(size=model.nv), 0.5)
        qpos[world] = moved * draw.uniform(0.9, 1.1)  # quaternions need not have length one
    return {
        "qpos": qpos,
        "qvel": draw.normal(size=(WORLDS, model.nv)),
        "ctrl": draw.normal(size=(WORLDS, model.nu)),
        "mocap_pos": draw.normal(size=(WORLDS, model.nmocap, 3)),
        "mocap_quat": draw.normal(size=(WORLDS, model.nmocap, 4)),
        "xfrc_applied": 0.1 * draw.normal(size=(WORLDS, model.nbody, 6)),
        "qfrc_applied": 0.1 * draw.normal(size=(WORLDS, model.nv)),
    }


def stock_forward(m: Any, d: Any) -> None:
    for stage in (mjw.fwd_position, mjw.fwd_velocity, mjw.fwd_actuation, mjw.fwd_acceleration):
        stage(m, d)


def stock_integrate(m: Any, d: Any) -> None:
    (mjw.euler if m.opt.integrator == mjw.IntegratorType.EULER else mjw.implicit)(m, d)


def solve_both(m: Any, stock: Any, ours: Any) -> None:
    """Solve constraints and hand the same solution to both."""
    mjw.solve(m, stock)
    for a, b in ((ours.qacc, stock.qacc), (ours.efc.Ma, stock.efc.Ma), (ours.nefc, stock.nefc)):
        wp.copy(a, b)


def same(found: Any, expected: Any, fields: Sequence[str], geoms: Any = slice(None), worlds: Any = slice(None)) -> None:
    """Fields agree as two orders of the same float32 sums do, relative to a world's largest number."""
    parts = {"qfrc_smooth": ("qfrc_smooth", "qfrc_bias", "qfrc_actuator")}
    for field in fields:
        a, b = (getattr(d, field).numpy()[worlds] for d in (found, expected))
        if field.startswith("geom_"):
            a, b = a[:, geoms], b[:, geoms]
        a, b = a.reshape(len(a), -1), b.reshape(len(b), -1)
        if a.size:
            assert np.isfinite(a).all(), field
            terms = [np.abs(getattr(expected, part).numpy()[worlds]) for part in parts.get(field, [field])]
            scale = np.maximum.reduce([x.reshape(len(x), -1).max(1) for x in terms])
            error = np.abs(a - b).max(1) / np.maximum(scale, 1e-6)
            assert error.max() < 4e-6, (field, error)


@pytest.mark.parametrize("integrator", ["implicitfast", "Euler"])
def test_everything_of_a_scene_with_every_kind_of_joint(device: str, integrator: str) -> None:
    model = mujoco.MjModel.from_xml_string(SCENE.format(integrator=integrator))
    with on(device):
        m = modelled(model)
        for field in ("body_mass", "body_inertia", "dof_damping", "jnt_pos", "actuator_gainprm"):
            vary(m, field)
        vary(m, "body_ipos", rows=2)  # world 2 shares those of world 0
        assert unsupported(m) is None
        stock, ours, lean = (filled(model, random_state(model)) for _ in range(3))
        stock_forward(m, stock)
        smooth = SmoothDynamics(m, ours)
        smooth.forward(everything=True)
        same(ours, stock, POSES + FORCES)
        SmoothDynamics(m, lean).forward()
        same(lean, stock, LEAN)
        solve_both(m, stock, ours)
        stock_integrate(m, stock)
        smooth.integrate()
        same(ours, stock, STATE)
        assert np.abs(ours.qpos.numpy() - lean.qpos.numpy()).max() > 1e-3
        mjw.fwd_kinematics(m, stock)
        mjw.com_vel(m, stock)
        smooth.kinematics()
        same(ours, stock, POSES)


@pytest.mark.parametrize(
    "task", [name for name in tasks.TASKS if name not in ("CartpoleSwingup", "Hopper", "DeceptiveReach")]
)
def test_a_substep_of_a_task(task: str) -> None:
    env: Any = tasks.make(task, preset(task).env, WORLDS, torch.device("cpu"), 0)
    env.reset()
    generator = torch.Generator().manual_seed(1)
    for _ in range(3):
        env.step(2 * torch.rand(WORLDS, env.action_dim, generator=generator) - 1)
    model = env.engine.model
    state = {name: getattr(env.engine, name).numpy() for name in ("qpos", "qvel", "ctrl", "mocap_pos", "mocap_quat")}
    with on("cpu"):
        m = modelled(model)
        for field in ("body_mass", "dof_damping"):
            vary(m, field)
        assert unsupported(m) is None
        stock, ours = (filled(model, state, env.config.contacts, env.config.constraints) for _ in range(2))
        stock_forward(m, stock)
        smooth = SmoothDynamics(m, ours)
        smooth.forward()
        touching = np.unique(m.nxn_geom_pair_filtered.numpy())
        same(ours, stock, [*LEAN, "geom_xpos", "geom_xmat"], touching)
        solve_both(m, stock, ours)
        stock_integrate(m, stock)
        smooth.integrate()
        same(ours, stock, STATE)


def test_a_world_that_is_not_a_number_stays_alone(device: str) -> None:
    model = mujoco.MjModel.from_xml_string(SCENE.format(integrator="implicitfast"))
    state = random_state(model)
    ill = {name: x.copy() for name, x in state.items()}
    ill["qpos"][1], ill["qvel"][1] = np.nan, np.inf
    with on(device):
        m = modelled(model)
        well, mixed = (filled(model, x) for x in (state, ill))
        for d in (well, mixed):
            smooth = SmoothDynamics(m, d)
            smooth.forward()
            smooth.integrate()
        same(mixed, well, [*LEAN, *STATE], worlds=[0, 2])
        assert np.isnan(mixed.qpos.numpy()[1]).all()


SITES = '<tendon><spatial><site site="a"/><site site="b"/></spatial></tendon>'


@pytest.mark.parametrize(
    ("reason", "option", "joint", "rest"),
    [
        ("an integrator other than Euler and implicitfast", 'integrator="RK4"', "", ""),
        ("a fluid", 'density="1.2"', "", ""),
        ("springs of free or ball joints", "", 'type="ball" stiffness="1"', ""),
        ("gravity compensation by actuators", "", 'actuatorgravcomp="true"', ""),
        ("actuators with activation", "", "", '<actuator><intvelocity joint="j"/></actuator>'),
        (
            "actuators of other things than hinges and slides",
            "",
            'type="ball"',
            '<actuator><motor joint="j" gear="1 0 0"/></actuator>',
        ),
        ("tendons along sites", "", "", SITES),
        (
            "dampers of tendons",
            "",
            "",
            '<tendon><fixed damping="1"><joint joint="j" coef="1"/></fixed></tendon>',
        ),
        ("equality constraints", "", "", '<equality><joint joint1="j"/></equality>'),
    ],
)
def test_what_needs_the_stock_functions_is_named(reason: str, option: str, joint: str, rest: str) -> None:
    body = f'<body gravcomp="1"><joint name="j" {joint}/><geom size="0.1"/><site name="b"/></body>'
    scene = f'<option {option}/><worldbody><site name="a"/>{body}</worldbody>{rest}'
    model = mujoco.MjModel.from_xml_string(f"<mujoco>{scene}</mujoco>")
    with on("cpu"):
        assert unsupported(modelled(model)) == reason
