"""MuJoCo Warp behind the engine contract, against the CPU engine."""

import mujoco
import pytest
import torch
from gpu import MARKS

from echelon import robots
from echelon.sim.contract import MAX_SPEED
from echelon.sim.cpu import CpuEngine
from echelon.sim.sensors import acceleration_sensors

pytestmark = MARKS
NUM_SIMS = 8
SUBSTEPS = 4
CUDA = torch.device("cuda")


def engines(name: str, **sizes: int):
    from echelon.sim.warp import WarpEngine

    model = robots.load(name)
    return CpuEngine(model, NUM_SIMS), WarpEngine(model, NUM_SIMS, CUDA, **sizes)


def lifted(engine: CpuEngine) -> tuple[torch.Tensor, torch.Tensor]:
    """States in the air, different in every simulation: nothing touches for a while."""
    generator = torch.Generator().manual_seed(0)
    qpos = engine.qpos.clone()
    qpos[:, engine.model.joint("z").qposadr[0]] += 3.0
    qpos[:, 2:] += 0.1 * torch.randn(qpos[:, 2:].shape, generator=generator, dtype=qpos.dtype)
    return qpos, 0.1 * torch.randn(engine.qvel.shape, generator=generator, dtype=qpos.dtype)


def start(here, there) -> None:
    qpos, qvel = lifted(here)
    everything = torch.ones(NUM_SIMS, dtype=torch.bool)
    here.set_state(everything, qpos, qvel)
    there.set_state(everything.cuda(), qpos.float().cuda(), qvel.float().cuda())


def test_contact_free_motion_equals_the_cpus() -> None:
    """100 control steps with random controls, to 1e-3 of the motion's size; sensors that need no solver too."""
    here, there = engines("hopper")
    start(here, there)
    early = ~torch.from_numpy(acceleration_sensors(here.model))
    generator = torch.Generator().manual_seed(1)
    for _ in range(25):
        control = torch.rand(here.ctrl.shape, generator=generator, dtype=torch.float64) * 2 - 1
        here.ctrl.copy_(control)
        there.ctrl.copy_(control)
        here.step(1)
        there.step(1)
        torch.testing.assert_close(there.qpos.cpu().double(), here.qpos, rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(there.qvel.cpu().double(), here.qvel, rtol=1e-3, atol=1e-2)
    torch.testing.assert_close(
        there.sensordata.cpu().double()[:, early], here.sensordata[:, early], rtol=1e-3, atol=1e-2
    )
    torch.testing.assert_close(there.read("xpos").cpu().double(), here.read("xpos"), rtol=1e-3, atol=1e-3)


def test_poses_are_current_after_step_and_set_state() -> None:
    here, there = engines("hopper")
    start(here, there)
    for _ in range(2):
        data = mujoco.MjData(here.model)
        for sim in range(NUM_SIMS):
            data.qpos[:] = there.qpos[sim].cpu()
            mujoco.mj_kinematics(here.model, data)
            torch.testing.assert_close(there.read("xpos")[sim].cpu(), torch.tensor(data.xpos).float())
        there.step(SUBSTEPS)


def test_set_state_touches_only_the_masked() -> None:
    _, there = engines("hopper")
    for _ in range(10):
        there.step(SUBSTEPS)
    before = {name: x.clone() for name, x in there.state_dict()["state"].items()}
    mask = torch.zeros(NUM_SIMS, dtype=torch.bool, device=CUDA)
    mask[3] = True
    there.set_state(mask, there.qpos + 1.0, there.qvel + 1.0)
    after = there.state_dict()["state"]
    for name, x in before.items():
        assert torch.equal(after[name][~mask], x[~mask]), name
    assert torch.allclose(after["qpos"][3], before["qpos"][3] + 1.0)
    assert not after["qacc_warmstart"][3].any()


def test_a_nan_stays_in_its_simulation() -> None:
    _, there = engines("hopper")
    _, clean = engines("hopper")
    for engine in (there, clean):
        for _ in range(5):
            engine.step(SUBSTEPS)
    there.qvel[2, 0] = float("nan")
    there.step(SUBSTEPS)
    clean.step(SUBSTEPS)
    expected = torch.zeros(NUM_SIMS, dtype=torch.bool)
    expected[2] = True
    assert torch.equal(there.bad.cpu(), expected)
    assert torch.isfinite(there.qpos).all()
    torch.testing.assert_close(there.qpos.cpu()[~expected], clean.qpos.cpu()[~expected], rtol=1e-4, atol=1e-5)
    there.step(SUBSTEPS)
    assert not there.bad.any()


def test_what_runs_away_is_quarantined_alone() -> None:
    here, there = engines("hopper")
    start(here, there)  # in the air
    speeds = torch.zeros(NUM_SIMS)
    speeds[2], speeds[3], speeds[4] = 1.1 * MAX_SPEED, -1.1 * MAX_SPEED, 0.9 * MAX_SPEED
    for engine in (here, there):
        engine.qvel[:, 0] = speeds.to(engine.qvel)  # x of the torso: everything moves along
        engine.step(SUBSTEPS)
        expected = speeds.abs() > MAX_SPEED
        assert torch.equal(engine.bad.cpu(), expected)
        assert not engine.qvel[2:4].any()
        assert not engine.qpos[2:4, 0].any()
        engine.step(SUBSTEPS)
        assert not engine.bad.any()
    # float32 rounds what flies at such a speed; the others fly as on the CPU.
    torch.testing.assert_close(there.qpos.cpu().double()[5:], here.qpos[5:], rtol=1e-3, atol=1e-3)


def test_overflow_is_counted_and_not_printed(capfd: pytest.CaptureFixture) -> None:
    _, tight = engines("hopper", contacts=1, constraints=1)
    for _ in range(40):
        tight.step(SUBSTEPS)
    torch.cuda.synchronize()
    assert tight.overflow.sum() > 0
    assert "overflow" not in capfd.readouterr().out


def test_a_captured_step_equals_an_eager_one() -> None:
    _, eager = engines("hopper")
    _, captured = engines("hopper")
    captured.step(SUBSTEPS)  # compile and warm up outside the capture
    captured.load_state_dict(eager.state_dict())
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), captured.capturing():
        captured.step(SUBSTEPS)
    captured.load_state_dict(eager.state_dict())
    for _ in range(20):
        eager.step(SUBSTEPS)
        graph.replay()
    torch.testing.assert_close(captured.qpos, eager.qpos, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(captured.sensordata, eager.sensordata, rtol=1e-3, atol=1e-3)


def test_poses_read_before_a_capture_are_current_after_a_replay() -> None:
    here, there = engines("hopper")
    start(here, there)
    xpos = there.read("xpos")
    there.step(SUBSTEPS)  # compile and warm up outside the capture
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), there.capturing():
        there.step(SUBSTEPS)
    data = mujoco.MjData(here.model)
    for _ in range(3):
        graph.replay()
        data.qpos[:] = there.qpos[1].cpu()
        mujoco.mj_kinematics(here.model, data)
        torch.testing.assert_close(xpos[1].cpu(), torch.tensor(data.xpos).float())


BOX_ON_TABLE = """
<mujoco>
  <option timestep="0.008333"><flag nativeccd="disable"/></option>
  <worldbody>
    <geom type="box" size="0.2 0.2 0.1" pos="0 0 -0.1"/>
    <body name="box" pos="0 0 0.3">
      <freejoint/>
      <inertial mass="0.05" pos="0 0 0" diaginertia="2e-5 2e-5 2e-5"/>
      <geom name="box" type="box" size="0.025 0.025 0.025"/>
    </body>
  </worldbody>
</mujoco>
"""


def test_every_simulation_has_a_size_and_a_mass_of_its_own() -> None:
    """Boxes of 400 kg/m³ with three different sides, from a cube to a stick; MuJoCo's constants, and each at rest."""
    from echelon.sim.warp import WarpEngine

    model = mujoco.MjModel.from_xml_string(BOX_ON_TABLE)
    here, there = CpuEngine(model, NUM_SIMS), WarpEngine(model, NUM_SIMS, CUDA)
    halves = torch.stack([torch.tensor([0.025, 0.025 + 0.002 * i, 0.025 + 0.015 * i]) for i in range(NUM_SIMS)])
    mass = 3200 * halves.prod(dim=1)
    square = halves.square()
    for engine in (here, there):
        engine.expand("geom_size")[:, 1] = halves.to(engine.device, engine.qpos.dtype)
        engine.expand("body_mass")[:, 1] = mass.to(engine.device, engine.qpos.dtype)
        inertia = mass[:, None] / 3 * (square.sum(dim=1, keepdim=True) - square)
        engine.expand("body_inertia")[:, 1] = inertia.to(engine.device, engine.qpos.dtype)
        engine.set_const()
    for field in ("geom_rbound", "body_subtreemass", "body_invweight0", "dof_invweight0"):
        found = there.expand(field).cpu().double()
        torch.testing.assert_close(found, here.expand(field), rtol=1e-4, atol=1e-6, msg=field)
    state = there.qpos.clone()
    state[:, 2] = halves[:, 2].cuda() + 0.001
    there.set_state(torch.ones(NUM_SIMS, dtype=torch.bool, device=CUDA), state, torch.zeros_like(there.qvel))
    for _ in range(120):
        there.step(1)
    torch.testing.assert_close(there.qpos[:, 2].cpu(), halves[:, 2], rtol=0, atol=1e-3)
    assert not there.overflow.any()
