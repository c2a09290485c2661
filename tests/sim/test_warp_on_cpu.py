"""The Warp engine on Warp's CPU device: slow to compile, slow to run, and the same code that runs on a GPU.

One tiny scene, so that its kernels compile within a minute. `test_warp.py` has the rest, on a GPU.
"""

import mujoco
import numpy as np
import pytest
import torch

from echelon import robots
from echelon.sim.contract import MAX_SPEED
from echelon.sim.cpu import CpuEngine

pytest.importorskip("mujoco_warp", reason="needs MuJoCo Warp; pip install 'echelon[gpu]'")

NUM_SIMS, SUBSTEPS = 3, 2


@pytest.fixture(scope="module")
def warp_engine():
    from echelon.sim.warp import WarpEngine

    return WarpEngine(robots.load("cartpole"), NUM_SIMS, torch.device("cpu"), 8, 20)


@pytest.fixture
def there(warp_engine):
    """At rest in the default state."""
    warp_engine.set_state(torch.ones(NUM_SIMS, dtype=torch.bool), *default())
    warp_engine.ctrl.zero_()
    return warp_engine


def default() -> tuple[torch.Tensor, torch.Tensor]:
    model = robots.load("cartpole")
    return torch.tensor(model.qpos0).float().expand(NUM_SIMS, -1), torch.zeros(NUM_SIMS, model.nv)


def test_a_hundred_steps_are_those_of_the_other_engine(there) -> None:
    here = CpuEngine(robots.load("cartpole"), NUM_SIMS)
    generator = torch.Generator().manual_seed(0)
    for _ in range(100):
        control = torch.rand(here.ctrl.shape, generator=generator, dtype=torch.float64) * 2 - 1
        for engine in (here, there):
            engine.ctrl.copy_(control)
            engine.step(SUBSTEPS)
    assert here.qpos.abs().amax() > 0.5  # it moved
    torch.testing.assert_close(there.qpos.double(), here.qpos, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(there.qvel.double(), here.qvel, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(there.read("xpos").double(), here.read("xpos"), rtol=1e-3, atol=1e-3)


SENSORS = """
<mujoco>
  <worldbody>
    <body>
      <joint name="slide" type="slide" axis="0 0 1" stiffness="100" springref="1"/>
      <geom size="0.1" mass="1"/>
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
    engine.set_state(torch.tensor([True] + [False] * (NUM_SIMS - 1)), engine.qpos + 0.5, engine.qvel)


def poses(engine) -> torch.Tensor:
    """`[N, bodies, 3]` places of the bodies in the engine's present state, by MuJoCo itself."""
    data, found = mujoco.MjData(engine.model), []
    for qpos in engine.qpos:
        data.qpos[:] = qpos
        mujoco.mj_kinematics(engine.model, data)
        found.append(data.xpos.copy())
    return torch.from_numpy(np.stack(found)).float()


def test_nothing_is_refreshed_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    from echelon.sim.warp import WarpEngine

    engine = WarpEngine(robots.load("cartpole"), NUM_SIMS, torch.device("cpu"), 8, 20)
    seen = refreshes(monkeypatch, engine)
    for name in ("qpos", "act", "sensordata", "solver_niter"):
        engine.read(name)
    step_and_set(engine)
    assert not seen


def test_poses_are_current_from_the_first_read_on(monkeypatch: pytest.MonkeyPatch) -> None:
    from echelon.sim.warp import WarpEngine

    engine = WarpEngine(robots.load("cartpole"), NUM_SIMS, torch.device("cpu"), 8, 20)
    engine.ctrl.fill_(1.0)
    for _ in range(10):
        engine.step(SUBSTEPS)
    step_and_set(engine)
    assert (engine._field("xpos") - poses(engine)).abs().amax() > 0.1  # nobody has asked yet
    xpos = engine.read("xpos")
    torch.testing.assert_close(xpos, poses(engine))
    seen = refreshes(monkeypatch, engine)
    engine.step(SUBSTEPS)
    torch.testing.assert_close(xpos, poses(engine))
    engine.set_state(torch.tensor([False, True, True]), engine.qpos - 0.3, engine.qvel)
    torch.testing.assert_close(xpos, poses(engine))
    assert len(seen) == 2


@pytest.mark.parametrize(
    ("sensor", "expected"),
    [("<jointpos joint='slide'/>", 2), ("<jointvel joint='slide'/>", 2), ("<accelerometer site='centre'/>", 0)],
)
def test_sensors_of_positions_and_velocities_are_readers(
    monkeypatch: pytest.MonkeyPatch, sensor: str, expected: int
) -> None:
    """Sensors of accelerations are not: they belong to the last substep."""
    from echelon.sim.warp import WarpEngine

    model = mujoco.MjModel.from_xml_string(SENSORS.format(sensor))
    engine, here = WarpEngine(model, NUM_SIMS, torch.device("cpu"), 8, 20), CpuEngine(model, NUM_SIMS)
    seen = refreshes(monkeypatch, engine)
    step_and_set(engine)
    step_and_set(here)
    assert len(seen) == expected
    assert here.sensordata.abs().amax() > 0.1
    torch.testing.assert_close(engine.sensordata.double(), here.sensordata, rtol=1e-4, atol=1e-4)


def test_only_masked_simulations_are_set(there) -> None:
    there.ctrl.fill_(1.0)
    there.step(SUBSTEPS)
    before = there.qpos.clone()
    there.set_state(torch.tensor([False, True, False]), before + 1.0, torch.zeros_like(there.qvel))
    assert there.qpos[[0, 2]].equal(before[[0, 2]])
    assert there.qpos[1].equal(before[1] + 1.0)
    assert there.ctrl[:, 0].tolist() == [1.0, 0.0, 1.0]


def test_a_nan_is_quarantined(there) -> None:
    there.qvel[1, 0] = float("nan")
    there.step(SUBSTEPS)
    assert there.bad.tolist() == [False, True, False]
    assert torch.isfinite(there.qpos).all()
    there.step(SUBSTEPS)
    assert not there.bad.any()


@pytest.mark.parametrize("sign", [1, -1])
def test_both_engines_quarantine_what_runs_away_at_the_same_speed(sign: int) -> None:
    from echelon.sim.warp import WarpEngine

    model = mujoco.MjModel.from_xml_string(SENSORS.format("<jointvel joint='slide'/>"))
    model.jnt_stiffness[:] = 0  # speeds stay what they are, but for gravity
    for engine in (WarpEngine(model, NUM_SIMS, torch.device("cpu"), 8, 20), CpuEngine(model, NUM_SIMS)):
        engine.qvel[:, 0] = torch.tensor([1.0, 1.01 * sign * MAX_SPEED, 0.99 * sign * MAX_SPEED])
        engine.step(SUBSTEPS)
        assert engine.bad.tolist() == [False, True, False]
        assert engine.qpos[1].item() == engine.qvel[1].item() == 0.0
        fallen = -9.81 * SUBSTEPS * model.opt.timestep
        expected = torch.tensor([[1.0 + fallen], [0.0], [0.99 * sign * MAX_SPEED + fallen]])
        torch.testing.assert_close(engine.qvel.float(), expected)
        torch.testing.assert_close(engine.sensordata.float(), expected)
        engine.step(SUBSTEPS)
        assert not engine.bad.any()


@pytest.mark.parametrize("value", [1e5, -1e5])
def test_a_far_place_is_no_speed(there, value: float) -> None:
    there.qpos[1, 1] = value  # a pole that has turned many times
    there.step(SUBSTEPS)
    assert not there.bad.any()


def test_a_saved_state_goes_on(there) -> None:
    there.ctrl.fill_(0.7)
    there.step(SUBSTEPS)
    saved = there.state_dict()
    there.step(SUBSTEPS)
    expected = there.qpos.clone()
    there.load_state_dict(saved)
    there.step(SUBSTEPS)
    torch.testing.assert_close(there.qpos, expected, rtol=0, atol=1e-6)


def test_per_simulation_masses_are_felt_and_saved(warp_engine, there) -> None:
    """The last test of this file: it changes the engine's model. Twice the mass, half the speed."""
    mass = there.expand("body_mass")
    inertia = there.expand("body_inertia")
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
