"""MuJoCo Warp behind the engine contract, against the CPU engine.

Tiny scenes run on Warp's CPU device too: slow to compile, slow to run, and the same code that runs on a GPU.
"""

from itertools import product
from typing import Any

import mujoco
import numpy as np
import pytest
import scenes
import torch
from gpu import MARKS, needs_gpu

from echelon.sim.contract import MAX_SPEED
from echelon.sim.cpu import CpuEngine

pytest.importorskip("mujoco_warp", reason="needs MuJoCo Warp; pip install -e '.[gpu]'")

NUM_SIMS, SUBSTEPS = 3, 2
CUDA = torch.device("cuda")


@pytest.fixture(scope="module", params=["cpu", pytest.param("cuda", marks=MARKS)])
def device(request: pytest.FixtureRequest) -> torch.device:
    return torch.device(request.param)


def made(model: mujoco.MjModel | str, device: torch.device, **sizes: int) -> Any:
    from echelon.sim.warp import WarpEngine

    model = scenes.load(model) if isinstance(model, str) else model
    return WarpEngine(model, NUM_SIMS, device, **{"contacts": 8, "constraints": 20} | sizes)


@pytest.fixture(scope="module")
def warp_engine(device: torch.device) -> Any:
    return made("cartpole", device)


def put(engine: Any, qpos: torch.Tensor, qvel: torch.Tensor | None = None) -> None:
    """Set the state of every simulation, at rest unless told."""
    everywhere = torch.ones(NUM_SIMS, dtype=torch.bool, device=engine.device)
    engine.set_state(everywhere, qpos.to(engine.qpos), torch.zeros_like(engine.qvel) if qvel is None else qvel)


@pytest.fixture
def there(warp_engine: Any) -> Any:
    """At rest in the default state."""
    put(warp_engine, torch.tensor(warp_engine.model.qpos0).expand(NUM_SIMS, -1))
    warp_engine.ctrl.zero_()
    return warp_engine


def same(found: torch.Tensor, expected: torch.Tensor, rtol: float = 1e-3, atol: float = 1e-3) -> None:
    torch.testing.assert_close(found.cpu().double(), expected.cpu().double(), rtol=rtol, atol=atol)


def test_a_hundred_steps_are_those_of_the_other_engine(there) -> None:
    here = CpuEngine(scenes.load("cartpole"), NUM_SIMS)
    generator = torch.Generator().manual_seed(0)
    for _ in range(100):
        control = torch.rand(here.ctrl.shape, generator=generator, dtype=torch.float64) * 2 - 1
        for engine in (here, there):
            engine.ctrl.copy_(control)
            engine.step(SUBSTEPS)
    assert here.qpos.abs().amax() > 0.5  # it moved
    for found, expected in ((there.qpos, here.qpos), (there.qvel, here.qvel), (there.read("xpos"), here.read("xpos"))):
        same(found, expected)


SENSORS = """
<mujoco>
  <worldbody>
    <body><joint name="slide" type="slide" axis="0 0 1" stiffness="100" springref="1"/><geom size="0.1" mass="1"/>
      <site name="centre"/>
    </body>
  </worldbody>
  <sensor>{}</sensor>
</mujoco>
"""


def refreshes(monkeypatch: pytest.MonkeyPatch, engine) -> list[None]:
    """An entry for each time that kinematics are computed once more, from now on."""
    seen, refresh = [], engine._refresh
    monkeypatch.setattr(engine, "_refresh", lambda: (seen.append(None), refresh())[1])
    return seen


def step_and_set(engine) -> None:
    """Both places where what is read must be made current."""
    engine.step(SUBSTEPS)
    first = torch.arange(NUM_SIMS, device=engine.device) == 0
    engine.set_state(first, engine.qpos + 0.5, engine.qvel)


def poses(engine) -> torch.Tensor:
    """`[N, bodies, 3]` places of the bodies in the engine's present state, by MuJoCo itself."""
    data, found = mujoco.MjData(engine.model), []
    for qpos in engine.qpos:
        data.qpos[:] = qpos.cpu()
        mujoco.mj_kinematics(engine.model, data)
        found.append(data.xpos.copy())
    return torch.from_numpy(np.stack(found)).to(engine.qpos)


def test_poses_are_current_from_the_first_read_on(monkeypatch: pytest.MonkeyPatch, device: torch.device) -> None:
    """Before it, nothing is refreshed: other fields need no kinematics."""
    engine = made("cartpole", device)
    before = refreshes(monkeypatch, engine)
    for name in ("qpos", "act", "sensordata", "solver_niter"):
        engine.read(name)
    engine.ctrl.fill_(1.0)
    for _ in range(10):
        engine.step(SUBSTEPS)
    step_and_set(engine)
    assert not before
    assert (engine._field("xpos") - poses(engine)).abs().amax() > 0.1  # not asked for yet
    xpos = engine.read("xpos")
    torch.testing.assert_close(xpos, poses(engine))
    seen = refreshes(monkeypatch, engine)
    engine.step(SUBSTEPS)
    torch.testing.assert_close(xpos, poses(engine))
    engine.set_state(torch.arange(NUM_SIMS, device=device) > 0, engine.qpos - 0.3, engine.qvel)
    torch.testing.assert_close(xpos, poses(engine))
    assert len(seen) == 2


def test_sensors_of_positions_and_velocities_are_readers(monkeypatch: pytest.MonkeyPatch, device: torch.device) -> None:
    """Sensors of accelerations are not: they belong to the last substep."""
    for sensor, expected in (
        ("jointpos joint='slide'", 2),
        ("jointvel joint='slide'", 2),
        ("accelerometer site='centre'", 0),
    ):
        model = mujoco.MjModel.from_xml_string(SENSORS.format(f"<{sensor}/>"))
        engine, here = made(model, device), CpuEngine(model, NUM_SIMS)
        seen = refreshes(monkeypatch, engine)
        step_and_set(engine)
        step_and_set(here)
        assert len(seen) == expected, sensor
        assert here.sensordata.abs().amax() > 0.1
        same(engine.sensordata, here.sensordata, rtol=1e-4, atol=1e-4)


def test_only_masked_simulations_are_set(there) -> None:
    there.ctrl.fill_(1.0)
    there.step(SUBSTEPS)
    before = {name: x.clone() for name, x in there.state_dict()["state"].items()}
    mask = torch.arange(NUM_SIMS, device=there.device) == 1
    there.set_state(mask, there.qpos + 1.0, torch.zeros_like(there.qvel))
    after = there.state_dict()["state"]
    for name, x in before.items():
        assert after[name][~mask].equal(x[~mask]), name
    assert after["qpos"][1].equal(before["qpos"][1] + 1.0)
    assert not after["qacc_warmstart"][1].any()
    assert there.ctrl[:, 0].tolist() == [1.0, 0.0, 1.0]


def test_a_saved_state_goes_on_and_a_nan_is_quarantined_alone(there) -> None:
    there.ctrl.fill_(0.7)
    there.step(SUBSTEPS)
    saved = there.state_dict()
    there.step(SUBSTEPS)
    clean = there.qpos.clone()
    there.load_state_dict(saved)
    there.step(SUBSTEPS)
    torch.testing.assert_close(there.qpos, clean, rtol=0, atol=1e-6)
    there.load_state_dict(saved)
    there.qvel[1, 0] = float("nan")
    there.step(SUBSTEPS)
    assert there.bad.tolist() == [False, True, False]
    assert torch.isfinite(there.qpos).all()
    same(there.qpos[[0, 2]], clean[[0, 2]], rtol=1e-4, atol=1e-5)
    for far in (0.0, 1e5, -1e5):  # a pole that has turned many times is far, not fast
        there.qpos[1, 1] += far
        there.step(SUBSTEPS)
        assert not there.bad.any()


def test_both_engines_quarantine_what_runs_away_at_the_same_speed(device: torch.device) -> None:
    model = mujoco.MjModel.from_xml_string(SENSORS.format("<jointvel joint='slide'/>"))
    model.jnt_stiffness[:] = 0  # speeds stay what they are, but for gravity
    for engine, sign in product((made(model, device), CpuEngine(model, NUM_SIMS)), (1, -1)):
        engine.qvel[:, 0] = torch.tensor([1.0, 1.01 * sign * MAX_SPEED, 0.99 * sign * MAX_SPEED]).to(engine.qvel)
        engine.step(SUBSTEPS)
        assert engine.bad.tolist() == [False, True, False]
        assert engine.qpos[1].item() == engine.qvel[1].item() == 0.0
        fallen = -9.81 * SUBSTEPS * model.opt.timestep
        expected = torch.tensor([[1.0 + fallen], [0.0], [0.99 * sign * MAX_SPEED + fallen]])
        same(engine.qvel, expected)
        same(engine.sensordata, expected)
        engine.step(SUBSTEPS)
        assert not engine.bad.any()


def test_per_simulation_masses_are_felt_and_saved(there) -> None:
    """The last test of this file: it changes the engine's model. Twice the mass, half the speed."""
    mass, inertia = there.expand("body_mass"), there.expand("body_inertia")
    saved = there.state_dict()
    mass[1] *= 2
    inertia[1] *= 2
    there.set_const()
    there.qpos[:, 1] = 0.0
    there.ctrl.fill_(0.1)
    there.step(1)
    assert there.qvel[1, 0].item() == pytest.approx(there.qvel[0, 0].item() / 2, rel=0.02)
    there.load_state_dict(saved)
    assert there.expand("body_mass")[1].equal(there.expand("body_mass")[0])


def recorded(engine: Any) -> torch.cuda.CUDAGraph:
    """A graph of one step, compiled and warmed up outside the capture."""
    engine.step(SUBSTEPS)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), engine.capturing():
        engine.step(SUBSTEPS)
    return graph


@needs_gpu
def test_overflow_is_counted_and_not_printed(capfd: pytest.CaptureFixture) -> None:
    tight = made("hopper", CUDA, contacts=1, constraints=1)
    for _ in range(80):
        tight.step(SUBSTEPS)
    torch.cuda.synchronize()
    assert tight.overflow.sum() > 0
    assert "overflow" not in capfd.readouterr().out


@needs_gpu
def test_a_captured_step_equals_an_eager_one() -> None:
    eager, captured = (made("hopper", CUDA, contacts=16, constraints=80) for _ in range(2))  # on their feet
    graph = recorded(captured)
    captured.load_state_dict(eager.state_dict())
    for _ in range(40):
        eager.step(SUBSTEPS)
        graph.replay()
    same(captured.qpos, eager.qpos, rtol=1e-4, atol=1e-5)
    same(captured.sensordata, eager.sensordata)


@needs_gpu
def test_poses_read_before_a_capture_are_current_after_a_replay() -> None:
    """Hoppers, each in a state of its own, three metres up."""
    engine, generator = made("hopper", CUDA), torch.Generator().manual_seed(0)
    qpos = engine.qpos.cpu()
    qpos[:, engine.model.joint("z").qposadr[0]] += 3.0
    qpos[:, 2:] += 0.1 * torch.randn(qpos[:, 2:].shape, generator=generator)
    put(engine, qpos, 0.1 * torch.randn(engine.qvel.shape, generator=generator).cuda())
    xpos = engine.read("xpos")
    graph = recorded(engine)
    for _ in range(3):
        graph.replay()
        same(xpos, poses(engine), rtol=1e-5, atol=1e-5)


BOX_ON_TABLE = """
<mujoco>
  <option timestep="0.008333"><flag nativeccd="disable"/></option>
  <worldbody>
    <geom type="box" size="0.2 0.2 0.1" pos="0 0 -0.1"/>
    <body name="box" pos="0 0 0.3"><freejoint/><inertial mass="0.05" pos="0 0 0" diaginertia="2e-5 2e-5 2e-5"/>
      <geom name="box" type="box" size="0.025 0.025 0.025"/>
    </body>
  </worldbody>
</mujoco>
"""


@needs_gpu
def test_every_simulation_has_a_size_and_a_mass_of_its_own() -> None:
    """Boxes of 400 kg/m³ with three different sides, from a cube to a stick; MuJoCo's constants, and each at rest."""
    model = mujoco.MjModel.from_xml_string(BOX_ON_TABLE)
    here, there = CpuEngine(model, NUM_SIMS), made(model, CUDA, constraints=80)
    halves = torch.stack([torch.tensor([0.025, 0.025 + 0.006 * i, 0.025 + 0.05 * i]) for i in range(NUM_SIMS)])
    mass, square = 3200 * halves.prod(dim=1), halves.square()
    inertia = mass[:, None] / 3 * (square.sum(dim=1, keepdim=True) - square)
    for engine in (here, there):
        for field, values in (("geom_size", halves), ("body_mass", mass), ("body_inertia", inertia)):
            engine.expand(field)[:, 1] = values.to(engine.qpos)
        engine.set_const()
    for field in ("geom_rbound", "body_subtreemass", "body_invweight0", "dof_invweight0"):
        same(there.expand(field), here.expand(field), rtol=1e-4, atol=1e-6)
    state = there.qpos.clone()
    state[:, 2] = halves[:, 2].cuda() + 0.001
    put(there, state)
    for _ in range(120):
        there.step(1)
    torch.testing.assert_close(there.qpos[:, 2].cpu(), halves[:, 2], rtol=0, atol=1e-3)
    assert not there.overflow.any()
