"""Domain randomisation: what is drawn, what it does to the physics, and that it can be saved and repeated."""

from dataclasses import dataclass, replace
from typing import Any

import mujoco
import numpy as np
import pytest
import torch
from tasks.states import begun

from echelon.config.schema import ROBUST, RandomiseConfig
from echelon.errors import UserError
from echelon.tasks import mujoco_task
from echelon.tasks.mujoco_task import MujocoTask, StartState
from echelon.tasks.settings import MujocoTaskConfig

CPU = torch.device("cpu")
PHYSICS = replace(ROBUST, action_delay=(0, 0), action_noise=(0, 0), observation_delay=(0, 0), observation_noise=(0, 0))
PUCK = """
<mujoco>
  <option timestep="0.01" gravity="0 0 0"/>
  <worldbody>
    <body><joint name="x" type="slide" axis="1 0 0"/><joint name="y" type="slide" axis="0 1 0"/>
      <geom size="0.1" mass="3"/>
      <body pos="0 0 0.5"><geom size="0.1" mass="1"/></body>
    </body>
  </worldbody>
  <actuator><motor joint="x" ctrlrange="-4 4"/><motor joint="y"/></actuator>
</mujoco>
"""


@dataclass(frozen=True)
class PuckConfig(MujocoTaskConfig):
    """Settings of a puck."""

    episode_length: int = 100


class Puck(MujocoTask[PuckConfig]):
    """4 kg that slide without friction; a control step takes 0.02 s. The policy observes clock and velocities."""

    substeps = 2

    def model(self) -> mujoco.MjModel:
        return mujoco.MjModel.from_xml_string(PUCK)

    def observe(self) -> dict[str, torch.Tensor]:
        return {"policy": torch.cat((self.clock[:, None].float(), self.engine.qvel.float()), dim=1)}

    def reward(self, action: torch.Tensor) -> torch.Tensor:
        return self.zeros()

    def start_state(self) -> StartState:
        return StartState(self.zeros(2), self.zeros(2))


def puck(num_envs: int = 3, episode_length: int = 100, **ranges: Any) -> Puck:
    config = PuckConfig(episode_length=episode_length, randomise=RandomiseConfig(**ranges))
    env = Puck(config, num_envs, CPU, 0)
    env.reset()
    return env


@pytest.mark.parametrize("name", ["Hopper", "Anymal", "AllegroHand", "AllegroKukaRegrasping"])
def test_an_environment_is_mujoco_with_the_drawn_numbers(name: str) -> None:
    """Each simulation against one of MuJoCo's own whose model was changed by hand. The object of AllegroKuka differs
    between environments already."""
    env, plain = (begun(name, 4, randomise=randomise) for randomise in (PHYSICS, RandomiseConfig()))
    drawn, columns, substeps = env.randomiser.state["drawn"].numpy(), env.randomiser._columns, env.substeps
    start = env.engine.state_dict()["rows"].numpy().copy()
    action = 2 * torch.rand(4, env.action_dim, generator=torch.Generator().manual_seed(0)) - 1
    env.randomiser._push_chance = 0.0
    env.step(action)
    for i in range(4):
        factor = {key: drawn[i, columns[key]].astype(float) for key in columns}
        model = plain.engine._batch.get_model(i)
        model.body_mass *= factor["mass"]
        model.body_inertia *= factor["mass"][:, None]
        for body in reversed(range(model.nbody)):
            model.body_subtreemass[body] = model.body_mass[body]
        for body in reversed(range(1, model.nbody)):
            model.body_subtreemass[model.body_parentid[body]] += model.body_subtreemass[body]
        model.geom_friction *= factor["friction"]
        model.dof_damping *= factor["damping"]
        model.dof_armature *= factor["armature"]
        model.actuator_gainprm *= factor["gain"][:, None]
        model.actuator_biasprm *= factor["gain"][:, None]
        model.opt.gravity *= factor["gravity"]
        data = mujoco.MjData(model)
        mujoco.mj_setState(model, data, start[i], int(mujoco.mjtState.mjSTATE_INTEGRATION))
        data.ctrl[:], data.xfrc_applied[:] = env.engine.ctrl[i], env.engine.xfrc_applied[i]
        mujoco.mj_step(model, data, nstep=substeps)
        np.testing.assert_allclose(env.engine.qvel[i].numpy(), data.qvel, rtol=1e-6, atol=1e-8)


def test_values_lie_in_their_ranges_unless_pinned_or_off_and_last_for_an_episode() -> None:
    env = puck(200, episode_length=3, mass=(0.5, 1.5), gravity=(2.0, 2.0))
    mass = env.engine.expand("body_mass")
    first = mass.clone()
    assert (first[:, 0] == 0.0).all()
    shares = first[:, 1:] / torch.tensor([3.0, 1.0])
    assert 0.5 <= shares.min() < 0.52
    assert 1.48 < shares.max() <= 1.5
    assert abs(float(torch.corrcoef(shares.T)[0, 1])) < 0.2
    for ended in (False, False, True):
        step = env.step(torch.zeros(200, 2))
        assert mass.equal(first) != ended
        assert bool(step.truncated.all()) == ended
    torch.testing.assert_close(env.engine.expand("body_subtreemass")[:, 1], mass[:, 1:].sum(1))
    env = puck(3, friction=(0.5, 1.5), mass=(0.5, 1.5))
    assert env.randomiser is not None
    env.randomiser.pin({"mass": torch.tensor([0.5, 1.0, 2.0]), "friction": torch.ones(3)})
    env.reset()
    assert env.engine.expand("body_mass")[:, 1].tolist() == [1.5, 3.0, 6.0]
    assert puck(mass=(2, 2)).engine.expand("body_mass")[:, 1].tolist() == [6.0] * 3  # whole numbers, from Python
    with pytest.raises(UserError, match=r"write --randomise.action-delay 0 0\.02$"):  # the lowest value first
        puck(action_delay=(0.02, 0.0))
    env = begun("Hopper", 4, randomise=RandomiseConfig(push_seconds=1.0))
    assert env.randomiser is None
    assert not [name for name in env.state_dict()["kept"] if name.startswith("randomise")]
    assert env.engine.state_dict()["model"] == {}


def test_controls_arrive_late() -> None:
    """1.5 control steps: half of what was sent one step ago, half two; before the first action that one was sent."""
    env = puck(action_delay=(0.03, 0.03), episode_length=5)
    sent = torch.tensor([0.8, -0.4, 0.2, 1.0, 0.0, 0.6, -1.0])
    arrived = []
    for value in sent:
        env.step(value.expand(3, 2))
        arrived.append(env.engine.ctrl[0, 1].item())
    # The fifth step ends the episode, so its controls are gone already; the sixth begins another.
    assert arrived == pytest.approx([0.8, 0.8, 0.2, -0.1, 0.0, 0.6, 0.6])
    # A NaN that is sent ends an episode, and not the next one too.
    env = puck(action_delay=(0.02, 0.02))
    ended = [env.step(torch.full((3, 2), value)).terminated.any() for value in (0.5, torch.nan, 0.5, 0.5)]
    assert ended == [False, True, False, False]
    # So do observations, from the episode's first one on.
    env = puck(observation_delay=(0.03, 0.03), episode_length=4)
    clocks = [env.step(torch.zeros(3, 2)) for _ in range(6)]
    assert [step.obs["policy"][0, 0].item() for step in clocks] == pytest.approx([0, 0.5, 1.5, 0, 0, 0.5])
    assert clocks[3].final_obs is not None
    assert clocks[3].final_obs["policy"][0, 0].item() == pytest.approx(2.5)


def test_noise_has_the_deviation_that_was_drawn_and_a_push_its_speed() -> None:
    """Controls in shares of half a range, which is 4 for one motor, and of 1 for the other, which has none."""
    env = puck(1000, action_noise=(0.1, 0.1), observation_noise=(0.0, 0.2))
    step = env.step(torch.zeros(1000, 2))
    torch.testing.assert_close(env.engine.ctrl.std(0), torch.tensor([0.4, 0.1]).double(), rtol=0.1, atol=0)
    seen, sigma = step.obs["policy"][:, 0] - 1.0, env.randomiser.state["drawn"][:, 1]
    assert step.final_obs is not None
    assert step.final_obs["policy"].equal(step.obs["policy"])
    torch.testing.assert_close((seen / sigma).std(), torch.tensor(1.0), rtol=0.1, atol=0)
    assert seen[sigma < 0.02].abs().max() < 0.1
    again = puck(1000, observation_noise=(0.0, 0.2), episode_length=1)
    first = again.step(torch.zeros(1000, 2)).obs["policy"][:, 0]  # of the next episode, whose clock is 0
    assert first[again.randomiser.state["drawn"][:, 0] < 0.02].abs().max() < 0.1
    env = puck(1000, push=(0.5, 0.5), push_seconds=0.08)
    env.step(torch.zeros(1000, 2))
    speed = env.engine.qvel.norm(dim=1)
    pushed = speed > 0
    torch.testing.assert_close(speed[pushed], torch.full_like(speed[pushed], 0.5))
    assert 0.2 < pushed.float().mean() < 0.3  # 0.02 s of every 0.08 s
    assert not env.engine.xfrc_applied.any()
    assert env.engine.qvel[pushed].mean(0).abs().max() < 0.1
    anymal = begun("Anymal", 1, randomise=RandomiseConfig(push=(0.5, 0.5)))
    assert anymal.randomiser._push_force.nonzero()[:, 0].tolist() == [1]  # its base, and no leg


def test_both_engines_do_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Anymal on MuJoCo and on MuJoCo Warp, both on the CPU, so that they draw the same numbers. Episodes last 3 steps;
    the second engine is saved and restored in between."""
    pytest.importorskip("mujoco_warp", reason="needs MuJoCo Warp, the extra [gpu]")
    from echelon.sim.warp import WarpEngine

    here = begun("Anymal", 4, randomise=ROBUST, episode_length=3)
    monkeypatch.setattr(mujoco_task, "make_engine", lambda model, n, *_: WarpEngine(model, n, CPU, 100, 300))
    there, copy = (begun("Anymal", 4, seed=seed, randomise=ROBUST, episode_length=3) for seed in (0, 5))
    generator = torch.Generator().manual_seed(1)
    for step in range(8):
        if step == 5:
            copy.load_state_dict(there.state_dict())
            there = copy
        action = 2 * torch.rand(4, here.action_dim, generator=generator) - 1
        a, b = (env.step(action).obs["policy"] for env in (here, there))
        torch.testing.assert_close(b, a, rtol=0, atol=0.02)
    for field in ("body_mass", "body_inertia", "body_subtreemass", "geom_friction", "dof_damping", "opt.gravity"):
        torch.testing.assert_close(there.engine.expand(field).double(), here.engine.expand(field), rtol=1e-5, atol=1e-8)
    torch.testing.assert_close(there.engine.expand("actuator_gainprm").double(), here.engine.expand("actuator_gainprm"))
