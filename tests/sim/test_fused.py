"""Our kernels against MuJoCo Warp's own functions from identical states: smooth dynamics and integration, constraint
rows, the Newton solver, and whole steps.

Warp's CPU blocks run the text of the CUDA kernels, so all but speed is tested without a GPU.
"""

from collections.abc import Iterator
from typing import Any

import mujoco
import numpy as np
import pytest
import torch
from gpu import MARKS

import echelon
from echelon import tasks
from echelon.sim import probe

pytest.importorskip("mujoco_warp", reason="needs MuJoCo Warp, the extra [gpu]")
import mujoco_warp as mjw
import warp as wp

from echelon.sim import kernel, newton, rows, smooth
from echelon.sim.smooth import SmoothDynamics
from echelon.sim.substep import PARTS, Substep
from echelon.sim.warp import WarpEngine
from echelon.tasks.randomise import FIELDS

pytestmark = pytest.mark.usefixtures("device")
ON_CPU = pytest.mark.parametrize("device", ["cpu"], indirect=True)

LEAN = "subtree_com cdof M qfrc_smooth ten_J ten_length "
POSES = (
    "xpos xquat xmat xipos ximat xanchor xaxis geom_xpos geom_xmat site_xpos site_xmat subtree_com cinert cdof cvel "
    "cdof_dot ten_J ten_length "
)
FORCES = (
    "crb M cacc cfrc_int qfrc_spring qfrc_damper qfrc_gravcomp qfrc_passive qfrc_bias qfrc_actuator qfrc_smooth "
    "actuator_length actuator_velocity actuator_force ten_velocity "
)
STATE = "qpos qvel qacc_warmstart time overflow "
ROWS = ("type", "id", "pos", "margin", "vel", "frictionloss", "D", "aref")
MODELS = (
    *("AllegroHand", "ShadowHand", "AllegroKukaRegrasping", "Humanoid", "Anymal"),
    *("FrankaCubePush", "FrankaCubeStack", "AllegroKukaTwoArmsReorientation"),
)
"""Tasks whose models differ; the other AllegroKuka tasks of one arm have Regrasping's."""
JOINTS = """
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
CONTACTS = """
<mujoco>
  <option cone="{cone}" iterations="30" impratio="3" timestep="0.005"/>
  <worldbody>
    <geom type="plane" size="5 5 1" condim="{condim}" friction="0.7 0.02 0.01"/>
    <body pos="0 0 0.05"><freejoint/><geom type="box" size="0.05 0.06 0.05" condim="{condim}"/></body>
    <body pos="0.3 0 0.04"><freejoint/><geom type="capsule" size="0.04 0.1" euler="0 90 0" condim="1"/></body>
    <body pos="0 1 0.3">
      <joint name="a" axis="0 1 0" range="-10 10" limited="true" frictionloss="0.2" damping="0.1"/>
      <geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.03" condim="{condim}"/>
      <body pos="0.3 0 0">
        <joint name="b" axis="0 1 0" range="-20 20" limited="true" frictionloss="0.05"/>
        <geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.03" condim="{condim}"/>
      </body>
    </body>
    {pendulums}
  </worldbody>
  <tendon>
    <fixed limited="true" range="-0.1 0.1"><joint joint="a" coef="1"/><joint joint="b" coef="-0.5"/></fixed>
  </tendon>
</mujoco>
"""
PENDULUM = """
<body pos="0 {i} 2">
  <joint axis="0 1 0" range="-10 10" limited="true" frictionloss="0.1"/>
  <geom type="capsule" fromto="0 0 0 0.2 0 0" size="0.03" contype="0" conaffinity="0"/>
</body>
"""
State = dict[str, np.ndarray]


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=MARKS)])
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run Warp on a device, on the CPU with blocks of 32 threads."""
    wp.config.log_level = wp.LOG_WARNING
    wp.config.enable_cpu_blocks = request.param == "cpu"
    try:
        with wp.ScopedDevice(request.param):
            yield request.param
    finally:
        wp.config.enable_cpu_blocks = False


def compiled(xml: str, **words: object) -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(xml.format(**words))


def contact_scene(cone: str, condim: int, pendulums: int = 0) -> mujoco.MjModel:
    """Bodies on a floor and joints at their limits: 14 degrees of freedom, and one for each pendulum."""
    more = "".join(PENDULUM.format(i=i) for i in range(pendulums))
    return compiled(CONTACTS, cone=cone, condim=condim, pendulums=more)


def task_state(name: str, worlds: int, actions: int, hold: int) -> tuple[Any, State]:
    """A task and its state after some random control steps on MuJoCo itself."""
    env: Any = tasks.make(name, echelon.preset(name).env, worlds, torch.device("cpu"), 0)
    env.reset()
    generator = torch.Generator().manual_seed(1)
    for _ in range(actions):
        action = 2 * torch.rand(worlds, env.action_dim, generator=generator) - 1
        for _ in range(hold):
            env.step(action)
    fields = ("qpos", "qvel", "ctrl", "mocap_pos", "mocap_quat")
    return env, {name: getattr(env.engine, name).numpy().copy() for name in fields}


def still(model: mujoco.MjModel, worlds: int = 4, sunk: float = 0.002) -> State:
    """At rest in the default state, `sunk` metres lower, where bodies touch the floor."""
    return {"qpos": np.tile(model.qpos0, (worlds, 1)) - sunk, "qvel": np.zeros((worlds, model.nv))}


def put(model: mujoco.MjModel) -> Any:
    m = mjw.put_model(model)
    m.opt.warn_overflow = 0
    return m


def fill(model: mujoco.MjModel, state: State, contacts: int | None = 4, constraints: int | None = 20) -> Any:
    d = mjw.make_data(model, nworld=len(state["qpos"]), nconmax=contacts, njmax=constraints)
    for name, values in state.items():
        if values.size:
            getattr(d, name).assign(values.astype(np.float32))
    return d


def stock_forward(m: Any, d: Any) -> None:
    for stage in (mjw.fwd_position, mjw.fwd_velocity, mjw.fwd_actuation, mjw.fwd_acceleration):
        stage(m, d)


def ready(model: mujoco.MjModel, state: State, njmax: int | None = None) -> tuple[Any, Any]:
    """Model and data whose constraints are made, by stock functions, and not yet solved."""
    model = newton.dense(model)
    contacts, constraints = probe(model)
    m, d = put(model), fill(model, state, contacts, njmax or constraints)
    stock_forward(m, d)
    d.overflow.zero_()
    return m, d


# Smooth dynamics and integration


def put_smooth(model: mujoco.MjModel) -> Any:
    m = put(model)
    m.opt.run_qacc_smooth = False
    return m


def vary(m: Any, field: str, worlds: int = 3) -> None:
    """Give worlds values of their own of a model field."""
    shared = getattr(m, field)
    values = np.concatenate([shared.numpy() * (1.0 + 0.1 * world) for world in range(worlds)]).astype(np.float32)
    setattr(m, field, wp.array(values, dtype=shared.dtype))


def random_state(model: mujoco.MjModel) -> State:
    draw, worlds = np.random.default_rng(0), 3
    qpos = np.empty((worlds, model.nq))
    for world in range(worlds):
        moved = model.qpos0.copy()
        mujoco.mj_integratePos(model, moved, draw.normal(size=model.nv), 0.5)
        qpos[world] = moved * draw.uniform(0.9, 1.1)  # quaternions need not have length one
    return {
        "qpos": qpos,
        "qvel": draw.normal(size=(worlds, model.nv)),
        "ctrl": draw.normal(size=(worlds, model.nu)),
        "mocap_pos": draw.normal(size=(worlds, model.nmocap, 3)),
        "mocap_quat": draw.normal(size=(worlds, model.nmocap, 4)),
        "xfrc_applied": 0.1 * draw.normal(size=(worlds, model.nbody, 6)),
        "qfrc_applied": 0.1 * draw.normal(size=(worlds, model.nv)),
    }


def integrate_both(m: Any, stock: Any, ours: Any, smoothly: SmoothDynamics) -> None:
    """Solve constraints by the stock solver, hand the same solution to both, and take the step."""
    mjw.solve(m, stock)
    for a, b in ((ours.qacc, stock.qacc), (ours.efc.Ma, stock.efc.Ma), (ours.nefc, stock.nefc)):
        wp.copy(a, b)
    (mjw.euler if m.opt.integrator == mjw.IntegratorType.EULER else mjw.implicit)(m, stock)
    smoothly.integrate()


def same(found: Any, expected: Any, fields: str, geoms: Any = slice(None), worlds: Any = slice(None)) -> None:
    """Fields agree as two orders of the same float32 sums do, relative to a world's largest number."""
    parts = {"qfrc_smooth": ("qfrc_smooth", "qfrc_bias", "qfrc_actuator")}
    for field in fields.split():
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
def test_everything_of_a_scene_with_every_kind_of_joint(integrator: str) -> None:
    model = compiled(JOINTS, integrator=integrator)
    m = put_smooth(model)
    for field in ("body_mass", "body_inertia", "dof_damping", "jnt_pos", "actuator_gainprm"):
        vary(m, field)
    vary(m, "body_ipos", worlds=2)  # world 2 shares those of world 0
    assert smooth.unsupported(m) is None
    stock, ours, lean = (fill(model, random_state(model)) for _ in range(3))
    stock_forward(m, stock)
    smoothly = SmoothDynamics(m, ours)
    smoothly.forward(everything=True)
    same(ours, stock, POSES + FORCES)
    SmoothDynamics(m, lean).forward()
    same(lean, stock, LEAN)
    integrate_both(m, stock, ours, smoothly)
    same(ours, stock, STATE)
    assert np.abs(ours.qpos.numpy() - lean.qpos.numpy()).max() > 1e-3
    mjw.fwd_kinematics(m, stock)
    mjw.com_vel(m, stock)
    smoothly.kinematics()
    same(ours, stock, POSES)


@ON_CPU
@pytest.mark.parametrize("task", MODELS)
def test_a_substep_of_a_task(task: str) -> None:
    env, state = task_state(task, worlds=3, actions=3, hold=1)
    m = put_smooth(env.engine.model)
    for field in ("body_mass", "dof_damping"):
        vary(m, field)
    assert smooth.unsupported(m) is None
    room = env.config.contacts, env.config.constraints
    stock, ours = (fill(env.engine.model, state, *room) for _ in range(2))
    stock_forward(m, stock)
    smoothly = SmoothDynamics(m, ours)
    smoothly.forward()
    touching = np.unique(m.nxn_geom_pair_filtered.numpy())
    same(ours, stock, LEAN + "geom_xpos geom_xmat", touching)
    integrate_both(m, stock, ours, smoothly)
    same(ours, stock, STATE)


def test_a_world_that_is_not_a_number_stays_alone() -> None:
    model = compiled(JOINTS, integrator="implicitfast")
    state, ill = random_state(model), random_state(model)
    ill["qpos"][1], ill["qvel"][1] = np.nan, np.inf
    m = put_smooth(model)
    well, mixed = (fill(model, x) for x in (state, ill))
    for d in (well, mixed):
        smoothly = SmoothDynamics(m, d)
        smoothly.forward()
        smoothly.integrate()
    same(mixed, well, LEAN + STATE, worlds=[0, 2])
    assert np.isnan(mixed.qpos.numpy()[1]).all()


# Constraint rows and their solver


def rows_of(d: Any, world: int) -> State:
    """A world's rows in an order that does not depend on who came first."""
    count = min(int(d.nefc.numpy()[world]), d.njmax)
    found = {name: getattr(d.efc, name).numpy()[world, :count] for name in (*ROWS, "J")}
    order = np.lexsort((found["aref"], found["id"], found["type"]))
    return {name: x[order] for name, x in found.items()}


def solution(m: Any, d: Any) -> State:
    found = {name: getattr(d, name).numpy().copy() for name in ("qacc", "qfrc_constraint", "solver_niter", "overflow")}
    found["Ma"] = d.efc.Ma.numpy()[:, : m.nv].copy()
    counts = np.minimum(d.nefc.numpy(), d.njmax)
    for name in ("state", "force"):
        values = getattr(d.efc, name).numpy()
        found[name] = np.concatenate([x[:n] for x, n in zip(values, counts, strict=True)])
    return found


def close(found: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    scale = max(1.0, float(np.abs(expected).max(initial=0.0)))
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * scale)


def assert_solved_alike(m: Any, d: Any, tolerance: float = 1e-4) -> None:
    """Solve by both and compare: the same iterations, states and overflow bits, and numbers to rounding."""
    mjw.solve(m, d)
    stock = solution(m, d)
    for x in (d.overflow, d.qacc, d.efc.Ma, d.qfrc_constraint, d.solver_niter, d.efc.force, d.efc.state):
        x.zero_()
    newton.solve(m, d)
    ours = solution(m, d)
    if d.qpos.device.is_cuda:  # sums in another order end a world that is almost there an iteration or two apart
        assert np.abs(ours["solver_niter"] - stock["solver_niter"]).max() <= 3
    else:
        for name in ("solver_niter", "overflow", "state"):
            np.testing.assert_array_equal(ours[name], stock[name], err_msg=name)
    for name in ("qacc", "Ma", "qfrc_constraint", "force"):
        close(ours[name], stock[name], tolerance)


def assert_rows_alike(m: Any, d: Any) -> None:
    expected = [rows_of(d, world) for world in range(d.nworld)]
    counts = {name: getattr(d, name).numpy().copy() for name in ("ne", "nf", "nl", "nefc")}
    for name in ROWS:
        getattr(d.efc, name).zero_()
    J = d.efc.J.numpy()
    J[:, :32] = 0.0  # rows of joints only write their entry here, and the stock solver reads all
    J[:, 32:] = 7.0  # rows that must be written as a whole
    d.efc.J.assign(J)
    rows.Rows(m, d).make(m, d)
    for name, x in counts.items():
        np.testing.assert_array_equal(getattr(d, name).numpy(), x, err_msg=name)
    for world, stock in enumerate(expected):
        ours, alone = rows_of(d, world), np.isin(stock["type"], (1, 3))  # friction and limit of a joint
        for name in ROWS:
            close(ours[name], stock[name], 2e-5)
        close(ours["J"][~alone], stock["J"][~alone], 1e-6)
        assert (np.count_nonzero(d.efc.J.numpy()[world, 32 : alone.sum()], axis=1) == 1).all()


@pytest.mark.parametrize("name", MODELS)
def test_tasks_have_the_stock_rows_and_solution(name: str) -> None:
    env, state = task_state(name, worlds=4, actions=5, hold=6)
    state["qpos"][0], state["qvel"][0] = env.engine.model.qpos0, 0.0  # one world at rest
    m, d = ready(env.engine.model, {field: state[field] for field in ("qpos", "qvel", "ctrl")})
    assert rows.unsupported(m, d) is None
    assert_rows_alike(m, d)
    assert_solved_alike(m, d)  # a cold start
    d.qacc_warmstart.assign(1.01 * d.qacc.numpy())
    assert_solved_alike(m, d)  # a warm one


@pytest.mark.parametrize(
    ("cone", "condim", "pendulums", "few"),
    [  # few: most worlds in the second launch, or all in one
        *(("pyramidal", 3, 0, 4), ("pyramidal", 6, 0, 64), ("elliptic", 3, 0, 64), ("elliptic", 4, 0, 4)),
        # With pendulums there are more than 32 degrees of freedom and rows of joints.
        *(("elliptic", 6, 0, 4), ("pyramidal", 3, 20, 4), ("elliptic", 3, 20, 64)),
    ],
)
def test_every_kind_of_row(cone: str, condim: int, pendulums: int, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model = contact_scene(cone, condim, pendulums)
    state = still(model)
    qpos = state["qpos"]
    qpos[:, 3:7] = (1.0, 0.02, 0.01, 0.0)
    qpos[0, [2, 9]] += 1.0  # in the air
    qpos[2, 14:16] = (0.4, -0.5)  # beyond all limits
    qpos[2, 16:] = 0.3
    monkeypatch.setattr(newton, "few_rows", lambda nv, njmax: few)
    m, d = ready(model, state | {"qvel": np.random.default_rng(0).normal(size=(4, model.nv))})
    assert rows.unsupported(m, d) is None
    contacts = d.nefc.numpy() - d.nf.numpy() - d.nl.numpy()
    assert contacts[0] == 0
    assert contacts[1] > 4
    assert d.nl.numpy().max() == 3 + pendulums  # two joints and the tendon
    assert_rows_alike(m, d)
    assert_solved_alike(m, d)


def test_rows_that_do_not_fit_are_left_out_and_a_world_whose_forces_are_nan_stays_alone() -> None:
    model = contact_scene("pyramidal", 3)
    m, d = ready(model, still(model), njmax=9)
    full = d.nefc.numpy().copy()
    assert full.max() > 9
    rows.Rows(m, d).make(m, d)
    np.testing.assert_array_equal(d.nefc.numpy(), full)
    assert d.contact.efc_address.numpy()[: d.nacon.numpy()[0]].max() <= 8
    newton.solve(m, d)
    assert np.isfinite(d.qacc.numpy()).all()
    model = contact_scene("elliptic", 3)
    answers = []
    for broken in (False, True):
        m, d = ready(model, still(model))
        if broken:
            forces = d.qfrc_smooth.numpy()
            forces[1] = np.nan
            d.qfrc_smooth.assign(forces)
        rows.Rows(m, d).make(m, d)
        newton.solve(m, d)
        answers.append(d.qacc.numpy())
    assert np.isnan(answers[1][1]).any()
    np.testing.assert_array_equal(np.delete(answers[1], 1, 0), np.delete(answers[0], 1, 0))


# Whole steps, and models that our kernels do not serve


@pytest.mark.parametrize("name", ["ShadowHand", "AllegroKukaTwoArmsReorientation", "Anymal"])
def test_a_whole_control_step_is_the_stock_one(name: str, device: str) -> None:
    """With a randomised model: worlds differ in all that can be drawn."""
    env, state = task_state(name, worlds=4, actions=5, hold=6)
    qpos, qvel, ctrl = (torch.tensor(state[x], dtype=torch.float32, device=device) for x in ("qpos", "qvel", "ctrl"))
    ends = []
    for parts in ((), PARTS):
        engine = WarpEngine(env.engine.model, 4, torch.device(device), *probe(env.engine.model), fused=parts)
        assert not engine.substep.reasons
        for field in ("body_subtreemass", *(field for fields in FIELDS.values() for field in fields)):
            values = engine.expand(field)
            values *= (1.0 + 0.1 * torch.arange(4, device=device)).view(4, *[1] * (values.dim() - 1))
        engine.set_state(torch.ones(4, dtype=torch.bool, device=device), qpos, qvel)
        engine.ctrl.copy_(ctrl)
        engine.step(2)
        ends.append([x.cpu().numpy() for x in (engine.qpos, engine.qvel, engine.sensordata)])
    for stock, ours, tolerance in zip(*ends, (1e-5, 1e-4, 1e-3), strict=True):
        close(ours, stock, tolerance)


def test_install_changes_the_solver_of_whole_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    from mujoco_warp._src import solver

    monkeypatch.setattr(solver, "solve", solver.solve)  # put back afterwards
    model = contact_scene("elliptic", 3)
    ends = []
    for ours in (False, True):
        m, d = ready(model, still(model, worlds=2) | {"qvel": np.ones((2, model.nv))})
        if ours:
            newton.install()
            newton.install()  # twice is once
        mjw.step(m, d)
        ends.append(d.qvel.numpy())
    assert solver.solve is newton._choose
    close(ends[1], ends[0], 1e-5)


def test_models_it_does_not_know_keep_the_stock_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    ball = "<worldbody><geom type='plane' size='1 1 1'/><body><freejoint/><geom size='0.1'/></body></worldbody>"

    def with_option(option: str) -> tuple[Any, Any]:
        model = compiled(f"<mujoco><option {option}/>{ball}</mujoco>")
        return ready(model, still(model, worlds=2, sunk=0.0))

    for option, reason in (
        ("solver='CG'", "Newton"),
        ("jacobian='sparse'", "sparse"),
        ("noslip_iterations='2'", "noslip"),
    ):
        m, d = with_option(option)
        assert reason in str(newton.unsupported(m, d))
        assert reason in Substep(m, d).reasons["newton"]
    m, d = with_option("")
    assert newton.unsupported(m, d) is None
    monkeypatch.setattr(mjw, "__version__", "9.9.0")
    assert "MuJoCo Warp 9.9.0 is not among the versions" in str(newton.unsupported(m, d))


def test_every_private_field_is_there() -> None:
    """Fails with one sentence when MuJoCo Warp has moved a field; add the version to TESTED when this passes."""
    model = contact_scene("elliptic", 3)
    m, d = ready(model, still(model, worlds=2, sunk=0.0))
    assert kernel.unknown(m, d, "newton", "rows", "forward", "integrate") is None
    del m.M_hinit_i
    assert kernel.unknown(m, d, "newton") == "MuJoCo Warp's Model has no field M_hinit_i"


STOCK = {
    "an integrator other than Euler and implicitfast": ('integrator="RK4"', "", ""),
    "a fluid": ('density="1.2"', "", ""),
    "springs of free or ball joints": ("", 'type="ball" stiffness="1"', ""),
    "gravity compensation by actuators": ("", 'actuatorgravcomp="true"', ""),
    "actuators with activation": ("", "", '<actuator><intvelocity joint="j"/></actuator>'),
    "actuators of other things than hinges and slides": (
        "",
        'type="ball"',
        '<actuator><motor joint="j" gear="1 0 0"/></actuator>',
    ),
    "tendons along sites": ("", "", '<tendon><spatial><site site="a"/><site site="b"/></spatial></tendon>'),
    "dampers of tendons": ("", "", '<tendon><fixed damping="1"><joint joint="j" coef="1"/></fixed></tendon>'),
    "equality constraints": ("", "", '<equality><joint joint1="j"/></equality>'),
}
"""Option, joint and rest of a model that needs the stock functions, by the reason."""


@ON_CPU
def test_what_needs_the_stock_functions_is_named() -> None:
    for reason, (option, joint, rest) in STOCK.items():
        body = f'<body gravcomp="1"><joint name="j" {joint}/><geom size="0.1"/><site name="b"/></body>'
        scene = f'<option {option}/><worldbody><site name="a"/>{body}</worldbody>{rest}'
        assert smooth.unsupported(put_smooth(compiled(f"<mujoco>{scene}</mujoco>"))) == reason
