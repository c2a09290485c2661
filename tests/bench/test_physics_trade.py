"""The trade between rate and error of physics settings."""

import math
from types import SimpleNamespace

import mujoco
import numpy as np
import physics_trade as trade
import physics_variants as variants
import pytest
import torch

from echelon import robots
from echelon.envs.contract import Step
from echelon.errors import UserError
from echelon.presets import preset
from echelon.sim.cpu import CpuEngine
from echelon.tasks import make

HINGE_AND_BALL = """
<mujoco>
  <worldbody>
    <geom name="floor" type="plane" size="1 1 1"/>
    <body pos="3 0 1"><joint type="hinge"/><geom size="0.1" mass="1" contype="0" conaffinity="0"/></body>
    <body><freejoint/><geom size="0.1" mass="1"/></body>
  </worldbody>
</mujoco>
"""


def test_other_substeps_keep_the_control_step() -> None:
    model = robots.load("allegro_cube")  # 4 steps of 1/120 s
    assert variants.vary(model, 4, "substeps=6,iterations=3,contacts=11") == 6
    assert model.opt.timestep == pytest.approx(1 / 180)
    assert model.opt.iterations == 3
    touching = model.geom_contype != 0
    assert set(model.geom_solref[touching, 0]) == {0.011}


def test_hardness_and_friction_are_those_of_what_touches() -> None:
    model = mujoco.MjModel.from_xml_string(HINGE_AND_BALL)
    before = model.geom_solimp[1, :2].tolist()
    variants.vary(model, 1, "solimp=0.8/0.85,friction=0.5")
    assert model.geom_solimp[:, :2].tolist() == [[0.8, 0.85], before, [0.8, 0.85]]  # floor, hinge, ball
    assert model.geom_friction[:, 0].tolist() == [0.5, 1.0, 0.5]


def test_joint_friction_is_not_for_free_bodies() -> None:
    model = mujoco.MjModel.from_xml_string(HINGE_AND_BALL)
    variants.vary(model, 1, "frictionloss=0.5")
    assert model.dof_frictionloss.tolist() == [0.5, 0, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("change", ["speed=3", "self=on", "substeps=0", "cone=round", "iterations", "solimp=0.9"])
def test_what_is_no_change_is_named(change: str) -> None:
    with pytest.raises(UserError, match=f"^{change} is no change of the physics"):
        variants.vary(robots.load("hopper"), 4, change)


@pytest.mark.parametrize(("scene", "other"), [("allegro_cube", "cube"), ("humanoid", "floor")])
def test_without_self_collision_links_meet_others_only(scene: str, other: str) -> None:
    """The same configurations, half-way to a random pose; a humanoid is put half into the floor."""

    def pairs(model: mujoco.MjModel) -> list[set[str]]:
        rng, data, found = np.random.default_rng(0), mujoco.MjData(model), []
        hinges = model.jnt_type == mujoco.mjtJoint.mjJNT_HINGE
        low, high = model.jnt_range[hinges].T
        for _ in range(50):
            data.qpos[:] = model.qpos0
            data.qpos[model.jnt_qposadr[hinges]] = rng.uniform(low, high)
            data.joint(0).qpos[2] -= 0.5 if other == "floor" else 0.0
            mujoco.mj_forward(model, data)
            acting = [contact for contact in data.contact if not contact.exclude]
            found += [{model.geom(int(g)).name for g in contact.geom} for contact in acting]
        return found

    plain, changed = robots.load(scene), robots.load(scene)
    variants.vary(changed, 1, "self=off")
    before, after = pairs(plain), pairs(changed)
    assert variants.touches_itself(plain)
    assert any(other not in pair for pair in before)
    assert after == [pair for pair in before if other in pair]


def test_variants_worth_trying_differ_from_the_scene() -> None:
    model = robots.load("allegro_cube")
    for variant in variants.worth_trying(model, 4)[1:]:
        changed = robots.load("allegro_cube")
        variants.vary(changed, 4, variant)
        fields = ("geom_solref", "geom_condim", "geom_conaffinity", "dof_frictionloss", "dof_dampingpoly")
        same = all(np.array_equal(getattr(changed, f), getattr(model, f)) for f in (*fields, "body_gravcomp"))
        options = ("timestep", "iterations", "ls_iterations", "cone", "impratio")
        assert not same or any(getattr(changed.opt, f) != getattr(model.opt, f) for f in options), variant


def test_errors_by_hand() -> None:
    """Two states that count. In the reference the hinge moves by 0.1 rad and the ball stays, so an error of 0.05 rad is
    half a movement, and 3 and 4 mm are three and four times the least that an error is divided by."""
    model = mujoco.MjModel.from_xml_string(HINGE_AND_BALL)
    before = np.tile(model.qpos0, (4, 1))
    fine, ends = before.copy(), before.copy()
    fine[:, 0] += 0.1
    ends[:, 0] += (0.1, 0.15, 9.0, 9.0)
    ends[1, 1:3] += (0.003, -0.004)
    start = trade.Start(None, before, whole=np.array((True, True, False, True)))  # the third episode ended
    depth, bad = np.array((0.0, 0.002, 7.0, 7.0)), np.array((False, True, True, True))
    reference = trade.Ends(fine, depth, 0.0, np.array((False, False, False, True)))  # the fourth exploded
    found = trade.judge(model, [start], reference, trade.Ends(ends, depth, 0.25, bad))
    assert found["states"] == 2
    assert found["error_most"] == pytest.approx(math.sqrt((0.5**2 + 3**2 + 4**2) / 7))
    assert found["error_median"] == pytest.approx(found["error_most"] / 2)  # between that and none
    assert found["adrift_mm_most"] == pytest.approx(5.0)
    assert found["depth_mm_most"] == pytest.approx(2.0)
    assert found["at_limit"] == 0.25
    assert found["bad"] == 1


def test_depth_is_that_of_the_deepest_contact() -> None:
    engine = CpuEngine(mujoco.MjModel.from_xml_string(HINGE_AND_BALL), 2, threads=1)
    qpos = engine.qpos.clone()
    qpos[:, 3] = torch.tensor((0.097, 0.2))  # balls of 0.1 m
    engine.set_state(torch.ones(2, dtype=torch.bool), qpos, torch.zeros_like(engine.qvel))
    assert trade.depths(engine) == pytest.approx([0.003, 0.0])


def test_the_chosen_settings_end_where_the_task_went(monkeypatch: pytest.MonkeyPatch) -> None:
    env = make("Hopper", preset("Hopper").env, 32, torch.device("cpu"), 0)
    went, step = [], env.step

    def watched(action: torch.Tensor) -> Step:
        result = step(action)
        went.append(env.engine.qpos.numpy().copy())
        return result

    monkeypatch.setattr(env, "step", watched)
    starts = trade.random_starts(env, 2)  # from the states after 20 and 40 steps
    ends = trade.Trial(env, "chosen").run(starts)
    whole = np.concatenate([start.whole for start in starts])
    expected = np.concatenate([went[19 + trade.HORIZON], went[39 + trade.HORIZON]])
    assert whole.sum() > 8
    assert np.array_equal(ends.qpos[whole], expected[whole])
    assert not np.array_equal(starts[0].qpos, went[19 + trade.HORIZON])


def test_finer_steps_err_less_and_the_reference_not_at_all() -> None:
    reference = f"substeps={4 * trade.FINER},{trade.EXACT}"
    args = SimpleNamespace(num_envs=8, starts=1, rounds=2, variants=["substeps=8", "substeps=16", reference])
    chosen, twice, four_times, exact, floor = trade.trade_on_cpu("Hopper", args)
    assert chosen["error_median"] < 0.5  # all go for as long, so they end near each other
    assert chosen["error_median"] > twice["error_median"] > four_times["error_median"] > floor["error_median"] > 0
    assert exact["error_most"] == 0
    assert chosen["to_chosen"] == 1
    table = trade.table([chosen, twice]).splitlines()
    assert table[2].startswith("| chosen |")
    assert {line.count("|") for line in table} == {9}
