"""The fused constraint rows and Newton solver against MuJoCo Warp's own from identical states.

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

pytest.importorskip("mujoco_warp", reason="needs MuJoCo Warp, the extra [gpu]")
import mujoco_warp as mjw
import warp as wp

from echelon.sim import kernel, newton, rows
from echelon.sim.capacity import probe
from echelon.sim.substep import PARTS, Substep
from echelon.sim.warp import WarpEngine

WORLDS = 4
ROWS = ("type", "id", "pos", "margin", "vel", "frictionloss", "D", "aref")
MODELS = (
    "AllegroHand",
    "ShadowHand",
    "AllegroKukaRegrasping",
    "Humanoid",
    "Anymal",
    "FrankaCubePush",
    "FrankaCubeStack",
    "AllegroKukaTwoArmsReorientation",
)
"""Tasks whose models differ; the other AllegroKuka tasks of one arm have Regrasping's."""
SCENE = """
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


@pytest.fixture(autouse=True, params=["cpu", pytest.param("cuda", marks=MARKS)])
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run Warp on a device, on the CPU with blocks of 32 threads."""
    wp.config.log_level = wp.LOG_WARNING
    wp.config.enable_cpu_blocks = request.param == "cpu"
    try:
        with wp.ScopedDevice(request.param):
            yield request.param
    finally:
        wp.config.enable_cpu_blocks = False


def scene(cone: str, condim: int, pendulums: int = 0) -> mujoco.MjModel:
    """Bodies on a floor and joints at their limits: 14 degrees of freedom, and one for each pendulum."""
    more = "".join(PENDULUM.format(i=i) for i in range(pendulums))
    return mujoco.MjModel.from_xml_string(SCENE.format(cone=cone, condim=condim, pendulums=more))


def task_states(name: str) -> tuple[mujoco.MjModel, np.ndarray, np.ndarray, np.ndarray]:
    """A task's model and positions, velocities and controls after some random control steps on MuJoCo itself."""
    env: Any = tasks.make(name, echelon.preset(name).env, WORLDS, torch.device("cpu"), 0)
    env.reset()
    generator = torch.Generator().manual_seed(1)
    for _ in range(5):
        action = 2 * torch.rand(WORLDS, env.action_dim, generator=generator) - 1
        for _ in range(6):
            env.step(action)
    engine = env.engine
    return engine.model, engine.qpos.numpy().copy(), engine.qvel.numpy().copy(), engine.ctrl.numpy().copy()


def loaded(
    model: mujoco.MjModel, qpos: np.ndarray, qvel: np.ndarray, ctrl: np.ndarray | None = None, njmax: int | None = None
) -> tuple[Any, Any]:
    model = newton.dense(model)
    m = mjw.put_model(model)
    m.opt.warn_overflow = 0
    room = probe(model)
    d = mjw.make_data(model, nworld=len(qpos), nconmax=room.contacts, njmax=njmax or room.constraints)
    d.qpos.assign(qpos.astype(np.float32))
    d.qvel.assign(qvel.astype(np.float32))
    if ctrl is not None and ctrl.size:
        d.ctrl.assign(ctrl.astype(np.float32))
    mjw.fwd_position(m, d)
    mjw.fwd_velocity(m, d)
    mjw.fwd_actuation(m, d)
    mjw.fwd_acceleration(m, d)
    d.overflow.zero_()
    return m, d


def rows_of(d: Any, world: int) -> dict[str, np.ndarray]:
    """A world's rows in an order that does not depend on who came first."""
    count = min(int(d.nefc.numpy()[world]), d.njmax)
    found = {name: getattr(d.efc, name).numpy()[world, :count] for name in ROWS} | {"J": d.efc.J.numpy()[world, :count]}
    order = np.lexsort((found["aref"], found["id"], found["type"]))
    return {name: x[order] for name, x in found.items()}


def solution(m: Any, d: Any) -> dict[str, np.ndarray]:
    found = {name: getattr(d, name).numpy().copy() for name in ("qacc", "qfrc_constraint", "solver_niter", "overflow")}
    found["Ma"] = d.efc.Ma.numpy()[:, : m.nv].copy()
    counts = np.minimum(d.nefc.numpy(), d.njmax)
    found["states"] = np.concatenate([x[:n] for x, n in zip(d.efc.state.numpy(), counts, strict=True)])
    found["forces"] = np.concatenate([x[:n] for x, n in zip(d.efc.force.numpy(), counts, strict=True)])
    return found


def close(found: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    np.testing.assert_allclose(
        found, expected, rtol=tolerance, atol=tolerance * max(1.0, float(np.abs(expected).max(initial=0.0)))
    )


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
        for name in ("solver_niter", "overflow", "states"):
            np.testing.assert_array_equal(ours[name], stock[name], err_msg=name)
    for name in ("qacc", "Ma", "qfrc_constraint", "forces"):
        close(ours[name], stock[name], tolerance)


def assert_rows_alike(m: Any, d: Any) -> None:
    expected = [rows_of(d, world) for world in range(d.nworld)]
    counts = {name: getattr(d, name).numpy().copy() for name in ("ne", "nf", "nl", "nefc")}
    single = [[name in (1, 3) for name in world["type"]] for world in expected]  # friction and limit of a joint
    for name in ROWS:
        getattr(d.efc, name).zero_()
    J = d.efc.J.numpy()
    J[:, :32] = 0.0  # rows of joints only write their entry here, and the stock solver reads all
    J[:, 32:] = 7.0  # rows that must be written as a whole
    d.efc.J.assign(J)
    rows.Rows(m, d).make(m, d)
    for name, x in counts.items():
        np.testing.assert_array_equal(getattr(d, name).numpy(), x, err_msg=name)
    for world, (stock, alone) in enumerate(zip(expected, single, strict=True)):
        ours = rows_of(d, world)
        for name in ROWS:
            close(ours[name], stock[name], 2e-5)
        close(ours["J"][np.logical_not(alone)], stock["J"][np.logical_not(alone)], 1e-6)
        assert (np.count_nonzero(d.efc.J.numpy()[world, 32 : sum(alone)], axis=1) == 1).all()


@pytest.mark.parametrize("name", MODELS)
def test_tasks_have_the_stock_rows_and_solution(name: str) -> None:
    model, qpos, qvel, ctrl = task_states(name)
    qpos[0], qvel[0] = model.qpos0, 0.0  # one world at rest
    m, d = loaded(model, qpos, qvel, ctrl)
    assert rows.unsupported(m, d) is None
    assert_rows_alike(m, d)
    assert_solved_alike(m, d)  # a cold start
    d.qacc_warmstart.assign(1.01 * d.qacc.numpy())
    assert_solved_alike(m, d)  # a warm one


@pytest.mark.parametrize("few", [4, 64])  # most worlds in the second launch, or all in one
@pytest.mark.parametrize(
    ("cone", "condim", "pendulums"),
    [
        ("pyramidal", 1, 0),
        ("pyramidal", 3, 0),
        ("pyramidal", 4, 0),
        ("pyramidal", 6, 0),
        ("elliptic", 3, 0),
        ("elliptic", 4, 0),
        ("elliptic", 6, 0),
        ("pyramidal", 3, 20),  # more than 32 degrees of freedom, and than 32 rows of joints
        ("elliptic", 3, 20),
    ],
)
def test_every_kind_of_row(cone: str, condim: int, pendulums: int, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model = scene(cone, condim, pendulums)
    qpos = np.tile(model.qpos0, (WORLDS, 1)) - 0.002
    qpos[:, 3:7] = (1.0, 0.02, 0.01, 0.0)
    qpos[0, [2, 9]] += 1.0  # in the air
    qpos[2, 14:16] = (0.4, -0.5)  # beyond all limits
    qpos[2, 16:] = 0.3
    qvel = np.random.default_rng(0).normal(size=(WORLDS, model.nv))
    monkeypatch.setattr(newton, "few_rows", lambda nv, njmax: few)
    m, d = loaded(model, qpos, qvel)
    assert rows.unsupported(m, d) is None
    contacts = d.nefc.numpy() - d.nf.numpy() - d.nl.numpy()
    assert contacts[0] == 0
    assert contacts[1] > 4
    assert d.nl.numpy().max() == 3 + pendulums  # two joints and the tendon
    assert_rows_alike(m, d)
    assert_solved_alike(m, d)


def test_rows_that_do_not_fit_are_left_out_and_counted() -> None:
    model = scene("pyramidal", 3)
    qpos = np.tile(model.qpos0, (WORLDS, 1)) - 0.002
    m, d = loaded(model, qpos, np.zeros((WORLDS, model.nv)), njmax=9)
    full = d.nefc.numpy().copy()
    assert full.max() > 9
    rows.Rows(m, d).make(m, d)
    np.testing.assert_array_equal(d.nefc.numpy(), full)
    assert d.contact.efc_address.numpy()[: d.nacon.numpy()[0]].max() <= 8
    newton.solve(m, d)
    assert np.isfinite(d.qacc.numpy()).all()


def test_a_world_that_is_nan_stays_alone() -> None:
    model = scene("elliptic", 3)
    qpos, qvel = np.tile(model.qpos0, (WORLDS, 1)) - 0.002, np.zeros((WORLDS, model.nv))
    answers = []
    for broken in (False, True):
        m, d = loaded(model, qpos, qvel)
        if broken:
            smooth = d.qfrc_smooth.numpy()
            smooth[1] = np.nan
            d.qfrc_smooth.assign(smooth)
        rows.Rows(m, d).make(m, d)
        newton.solve(m, d)
        answers.append(d.qacc.numpy())
    assert np.isnan(answers[1][1]).any()
    np.testing.assert_array_equal(np.delete(answers[1], 1, 0), np.delete(answers[0], 1, 0))


@pytest.mark.parametrize("name", ["AllegroHand", "ShadowHand", "AllegroKukaTwoArmsReorientation", "Anymal"])
def test_a_whole_control_step_is_the_stock_one(name: str, device: str) -> None:
    model, qpos, qvel, ctrl = task_states(name)
    ends = []
    for parts in ((), PARTS):
        room = probe(model)
        engine = WarpEngine(model, WORLDS, torch.device(device), room.contacts, room.constraints, fused=parts)
        assert not engine.substep.reasons
        everyone = torch.ones(WORLDS, dtype=torch.bool, device=device)
        engine.set_state(everyone, *(torch.tensor(x, dtype=torch.float32, device=device) for x in (qpos, qvel)))
        engine.ctrl.copy_(torch.tensor(ctrl))
        engine.step(2)
        ends.append([x.cpu().numpy() for x in (engine.qpos, engine.qvel, engine.sensordata)])
    for stock, ours, tolerance in zip(*ends, (1e-5, 1e-4, 1e-3), strict=True):
        close(ours, stock, tolerance)


def test_models_it_does_not_know_keep_the_stock_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    ball = "<geom type='plane' size='1 1 1'/><body><freejoint/><geom size='0.1'/></body>"

    def with_option(option: str) -> tuple[Any, Any]:
        model = mujoco.MjModel.from_xml_string(f"<mujoco><option {option}/><worldbody>{ball}</worldbody></mujoco>")
        return loaded(model, np.tile(model.qpos0, (2, 1)), np.zeros((2, 6)))

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
    model = scene("elliptic", 3)
    m, d = loaded(model, np.tile(model.qpos0, (2, 1)), np.zeros((2, model.nv)))
    assert kernel.unknown(m, d, "newton", "rows", "forward", "integrate") is None
    del m.M_hinit_i
    assert kernel.unknown(m, d, "newton") == "MuJoCo Warp's Model has no field M_hinit_i"


def test_install_changes_the_solver_of_whole_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    from mujoco_warp._src import solver

    monkeypatch.setattr(solver, "solve", solver.solve)  # put back afterwards
    model = scene("elliptic", 3)
    ends = []
    for ours in (False, True):
        m, d = loaded(model, np.tile(model.qpos0, (2, 1)) - 0.002, np.ones((2, model.nv)))
        if ours:
            newton.install()
            newton.install()  # twice is once
        mjw.step(m, d)
        ends.append(d.qvel.numpy())
    assert solver.solve is newton._choose
    close(ends[1], ends[0], 1e-5)
