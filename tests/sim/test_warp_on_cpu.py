"""The Warp engine on Warp's CPU device: slow to compile, slow to run, and the same code that runs on a GPU.

One tiny scene, so that its kernels compile within a minute. `test_warp.py` has the rest, on a GPU.
"""

import pytest
import torch

from echelon import robots
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
