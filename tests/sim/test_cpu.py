"""The CPU engine against plain MuJoCo, to the bit, and its treatment of simulations that go wrong; sizes of buffers."""

import gc
import multiprocessing
import os
from itertools import product
from pathlib import Path

import mujoco
import numpy as np
import pytest
import torch
from torch import Tensor

from echelon.errors import UserError
from echelon.sim import CAPACITY_FACTOR, probe
from echelon.sim.contract import MAX_SPEED
from echelon.sim.cpu import CpuEngine

# A box that falls onto the floor and drags an actuated leg: contacts, an activation, sensors of every stage.
XML = """
<mujoco>
  <option timestep="0.005"/>
  <worldbody>
    <geom type="plane" size="5 5 1"/>
    <body name="box" pos="0 0 .2">
      <freejoint/>
      <geom name="box" type="box" size=".1 .1 .1" mass="1"/>
      <site name="box" type="box" size=".11 .11 .11"/>
      <body name="leg" pos=".15 0 0">
        <joint name="hip" axis="0 1 0"/>
        <geom type="capsule" size=".03" fromto="0 0 0 .2 0 0" mass=".2"/>
      </body>
    </body>
    <body name="target" mocap="true" pos="1 0 1"/>
  </worldbody>
  <actuator>
    <general joint="hip" dyntype="filter" dynprm=".02" gainprm="3" biastype="affine" biasprm="0 -3 0"/>
  </actuator>
  <sensor>
    <framepos objtype="body" objname="leg"/>
    <framelinvel objtype="body" objname="leg"/>
    <touch site="box"/>
  </sensor>
</mujoco>
"""
NUM_SIMS, SUBSTEPS = 4, 3


@pytest.fixture
def model() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(XML)


def controls(steps: int, seed: int = 0) -> Tensor:
    """`[steps, N, 1]`."""
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(steps, NUM_SIMS, 1, generator=generator, dtype=torch.float64) * 2 - 1


def advance(actions: Tensor, *engines: CpuEngine) -> None:
    for engine in engines:
        for action in actions:
            engine.ctrl.copy_(action)
            engine.step(SUBSTEPS)


def snapshot(engine: CpuEngine) -> Tensor:
    """`[N, K]`: everything a task sees."""
    parts = (engine.qpos, engine.qvel, engine.sensordata, engine.read("act"), engine.read("xpos").flatten(1))
    return torch.cat(parts, dim=1)


def two(model: mujoco.MjModel) -> tuple[CpuEngine, CpuEngine]:
    """An engine in which something happens, and one to compare with."""
    return CpuEngine(model, NUM_SIMS), CpuEngine(model, NUM_SIMS)


def mask_of(*sims: int) -> Tensor:
    return torch.tensor([sim in sims for sim in range(NUM_SIMS)])


def assert_restarted(engine: CpuEngine, sim: int) -> None:
    """That this simulation alone is marked and in its default state."""
    assert torch.equal(engine.bad, mask_of(sim))
    np.testing.assert_array_equal(engine.qpos[sim], engine.model.qpos0)
    assert not engine.qvel[sim].any()


def assert_same_but_for(sim: int, engine: CpuEngine, other: CpuEngine) -> None:
    assert torch.equal(snapshot(engine)[~mask_of(sim)], snapshot(other)[~mask_of(sim)])


def test_matches_a_plain_loop_of_mj_step(model: mujoco.MjModel) -> None:
    """Sensors and poses are of the state after the last substep."""
    engine, actions, contacts = CpuEngine(model, NUM_SIMS, threads=3), controls(40), 0
    xpos = engine.read("xpos")
    advance(actions, engine)
    for sim in range(NUM_SIMS):
        data = mujoco.MjData(model)
        for action in actions:
            data.ctrl[:] = action[sim].numpy()
            for _ in range(SUBSTEPS):
                mujoco.mj_step(model, data)
                contacts += data.ncon
        for name in ("qpos", "qvel", "act"):
            np.testing.assert_array_equal(engine.read(name)[sim], getattr(data, name))
        mujoco.mj_forward(model, data)
        np.testing.assert_array_equal(xpos[sim], data.xpos)
        np.testing.assert_array_equal(engine.sensordata[sim, :6], data.sensordata[:6])
    assert contacts > 0


def test_set_state_touches_only_the_masked_simulations(model: mujoco.MjModel) -> None:
    engine, untouched = two(model)
    actions = controls(30)
    advance(actions[:10], engine, untouched)
    engine.xfrc_applied[1, 1, 2] = 3.0
    engine.mocap_pos[1] = 5.0
    qpos, qvel = engine.qpos + 0.5, engine.qvel * 0 + 0.25
    qpos[1, 2] = 0.09  # into the floor, for the touch sensor
    engine.set_state(mask_of(1), qpos, qvel)

    default = mujoco.MjData(model)
    default.qpos[:], default.qvel[:] = qpos[1], qvel[1]
    mujoco.mj_forward(model, default)
    for name in ("qpos", "qvel", "mocap_pos"):
        np.testing.assert_array_equal(getattr(engine, name)[1], getattr(default, name))
    np.testing.assert_array_equal(engine.sensordata[1, :6], default.sensordata[:6])
    assert default.sensordata[6] > 0
    assert engine.sensordata[1, 6] == 0  # touch needs a step
    for name in ("act", "qacc_warmstart", "xfrc_applied", "ctrl", "time"):
        assert not engine.read(name)[1].any(), name
    assert_same_but_for(1, engine, untouched)
    advance(actions[10:], engine, untouched)
    assert_same_but_for(1, engine, untouched)
    assert not torch.equal(snapshot(engine)[1], snapshot(untouched)[1])
    # With nothing masked nothing changes.
    before = snapshot(engine).clone()
    engine.set_state(mask_of(), torch.full_like(engine.qpos, torch.nan), torch.full_like(engine.qvel, torch.nan))
    assert torch.equal(snapshot(engine), before)


def test_a_bad_simulation_is_marked_and_restarted_alone(
    model: mujoco.MjModel, capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And MuJoCo neither prints nor logs anything about it."""
    monkeypatch.chdir(tmp_path)
    engine, clean = two(model)
    values = [
        ("qpos", torch.nan),
        ("qpos", 1e12),
        ("qvel", torch.inf),
        ("ctrl", torch.nan),
        ("xfrc_applied", torch.nan),
    ]
    for number, (field, value) in enumerate(values):
        actions = controls(9, seed=number)
        advance(actions[:4], engine, clean)
        for one in (engine, clean):
            one.ctrl.copy_(actions[4])
        getattr(engine, field)[2][0 if field != "xfrc_applied" else 1] = value
        for one in (engine, clean):
            one.step(SUBSTEPS)
        assert_restarted(engine, 2)
        assert not clean.bad.any()
        assert snapshot(engine).isfinite().all()
        advance(actions[5:], engine, clean)
        assert not engine.bad.any()
        assert_same_but_for(2, engine, clean)
    assert capfd.readouterr().err == ""
    assert not list(tmp_path.iterdir())


def test_a_simulation_that_runs_away_is_marked_and_restarted_alone(model: mujoco.MjModel) -> None:
    """Long before MuJoCo warns; what is fast but below the limit continues."""
    model.opt.gravity[:] = 0  # and the box is above the floor: speeds stay what they are
    for dof, sign in product((0, 6), (1, -1)):  # a metre per second, and the last one, a radian per second
        engine, clean = two(model)
        for one in (engine, clean):
            qpos = one.qpos.clone()
            qpos[:, 2] = 5.0
            one.set_state(mask_of(0, 1, 2, 3), qpos, torch.zeros_like(one.qvel))
            one.qvel[1, dof] = sign * 0.9 * MAX_SPEED
        engine.qvel[2, dof] = sign * 1.1 * MAX_SPEED
        for one in (engine, clean):
            one.step(1)
        assert_restarted(engine, 2)
        assert not clean.bad.any()
        np.testing.assert_allclose(engine.sensordata[2, :6], [0.25, 0, 0.2, 0, 0, 0])  # the leg's middle, at rest
        assert_same_but_for(2, engine, clean)
        assert engine.qvel[1].abs().amax() > 0.8 * MAX_SPEED
        engine.step(1)
        assert not engine.bad[2]
    engine = CpuEngine(model, NUM_SIMS)  # exploding in the last substep, it is marked at once
    engine.qpos[0, 0], engine.qvel[0, 0] = 1e10 - 1, 0.5 * MAX_SPEED  # MuJoCo calls 1e10 huge; the substep passes it
    engine.step(1)
    assert_restarted(engine, 0)


def test_a_mujoco_error_marks_its_simulation_alone_and_overflow_counts_constraints() -> None:
    xml = XML.replace("</worldbody>", '</worldbody><equality><weld body1="target" body2="leg"/></equality>')
    engine, clean = two(mujoco.MjModel.from_xml_string(xml))
    kinds, _ = engine.expand("eq_type"), clean.expand("eq_type")
    actions = controls(6)
    advance(actions[:2], engine, clean)
    kinds[3] = 99  # no such constraint: mj_step raises
    advance(actions[2:4], engine, clean)
    assert_restarted(engine, 3)
    kinds[3] = kinds[0]
    advance(actions[4:], engine, clean)
    assert not engine.bad.any()
    assert_same_but_for(3, engine, clean)
    tight = mujoco.MjModel.from_xml_string(XML.replace("<worldbody>", '<size memory="4K"/><worldbody>', 1))
    engine = CpuEngine(tight, NUM_SIMS)
    qpos = engine.qpos.clone()
    qpos[:, 2] = 5.0
    qpos[1, 2] = 0.09  # only this one touches the floor
    engine.set_state(mask_of(0, 1, 2, 3), qpos, engine.qvel.clone())
    for step in range(1, 5):
        engine.step(1)
        assert engine.overflow.tolist() == [0, step, 0, 0]  # once in every step
    assert not engine.bad.any()


def test_state_dict_goes_on_to_the_bit(model: mujoco.MjModel) -> None:
    engine = CpuEngine(model, NUM_SIMS, threads=1)
    engine.expand("body_mass")[0, 1] = 1.5
    engine.set_const()
    actions = controls(60)
    advance(actions[:30], engine)
    engine.qpos[3] = torch.nan
    advance(actions[30:31], engine)
    state, seen = engine.state_dict(), snapshot(engine).clone()
    advance(actions[31:], engine)
    # The other engine has a past of its own: other states, other expanded fields, stages already computed.
    other = CpuEngine(model, NUM_SIMS, threads=2)
    other.expand("opt.gravity")[:, 2] = -1.0
    advance(controls(7, seed=1), other)
    other.load_state_dict(state)
    assert torch.equal(snapshot(other), seen)
    assert torch.equal(other.bad, mask_of(3))
    advance(actions[31:], other)
    assert torch.equal(snapshot(other), snapshot(engine))
    with pytest.raises(UserError, match="num_envs"):
        CpuEngine(model, 3).load_state_dict(state)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_can_let_go_of_it(model: mujoco.MjModel) -> None:
    """MuJoCo would wait for ever for threads that the parent kept."""
    held = [CpuEngine(model, NUM_SIMS, 2)]
    held[0].step(1)
    child = multiprocessing.get_context("fork").Process(target=lambda: (held.clear(), gc.collect()))
    child.start()
    child.join(60)
    child.kill()
    child.join()
    assert child.exitcode == 0
    held[0].step(1)


def test_buffers_grow_with_what_touches() -> None:
    """Each ball that lies on the floor is one contact, of four pyramid edges: 3 contacts and 12 rows for three."""

    def room(balls: int) -> tuple[int, int]:
        body = '<body pos="{} 0 0.2"><freejoint/><geom type="sphere" size="0.1"/></body>'
        scene = '<geom type="plane" size="5 5 1"/>' + "".join(body.format(2 * i) for i in range(balls))
        return probe(mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{scene}</worldbody></mujoco>"), seed=3)

    assert room(0) == (8, 16)
    assert room(3) == room(3) == (8 + int(CAPACITY_FACTOR * 3), 16 + int(CAPACITY_FACTOR * 12))
