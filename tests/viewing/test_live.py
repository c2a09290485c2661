"""The live view: the environment's state reaches the viewer at the asked pace, and obeys the page."""

from pathlib import Path

import mujoco
import numpy as np
import pytest
import torch

pytest.importorskip("mujoco.studio.web_viewer", reason="this MuJoCo has no web viewer")

from mujoco.studio import messages, sim
from tiny import tiny

from echelon.runs.folder import RunFolder
from echelon.runs.trained import Trained
from echelon.training.loop import train
from echelon.viewing.live import Request, Simulation
from echelon.viewing.recorder import record
from echelon.viewing.scene import shown_model


class Handle:
    """What the simulation needs of a viewer."""

    def __init__(self, model: mujoco.MjModel) -> None:
        self.set_model(model)

    def set_model(self, model: mujoco.MjModel) -> None:
        self.model, self.data = model, mujoco.MjData(model)


def started(folder: RunFolder, policy: int = 0, checkpoint: int | None = None) -> Simulation:
    start = Simulation(Trained.load(folder, checkpoint or "newest"), policy, seed=5)
    start.handle = Handle(shown_model(start.engine))
    return start


@pytest.fixture
def hopping(hopper: RunFolder) -> Simulation:
    return started(hopper)


def test_the_viewer_sees_the_recorded_course(hopper: RunFolder, hopping: Simulation) -> None:
    """The same seed gives the recording's first episode: ten steps are its fifth frame."""
    (tape,) = record(Trained.load(hopper), "leader", seed=5)
    data = hopping.handle.data
    hopping.advance(0.2 + 1e-6, data)  # ten control steps of 0.02 s
    hopping.paused = True
    hopping.on_step(messages.StepEvent(model=hopping.handle.model, data=data))
    assert data.qpos == pytest.approx(tape.qpos[5], abs=1e-12)
    assert data.time == pytest.approx(0.2)
    assert (hopping.runner.policy, hopping.episode) == (0, 1)
    assert hopping.total_return != 0
    for _ in range(15):
        hopping.step(data)
    assert (hopping.episode, hopping.steps) == (2, 1)  # after 24 steps the next episode begins by itself


def test_pause_speed_single_steps_and_pushes(hopping: Simulation) -> None:
    data = hopping.handle.data
    hopping.on_pace(messages.StepControlSnapshot(pause_state=sim.PauseState.UNPAUSED, speed=50.0))
    hopping.advance(0.1 + 1e-6, data)
    assert hopping.steps == 2  # half of the speed: 0.05 s are two and a half steps
    hopping.on_pace(messages.StepControlSnapshot(pause_state=sim.PauseState.NORMAL_PAUSED, speed=50.0))
    hopping.advance(10.0, data)
    assert hopping.steps == 2
    hopping.on_single_step(messages.SingleStepEvent())
    assert hopping.steps == 3
    hopping.on_pace(messages.StepControlSnapshot(pause_state=sim.PauseState.UNPAUSED, speed=100.0))
    hopping.advance(60.0, data)
    assert hopping.steps <= 13  # one that is late does not run after the clock: 0.2 s
    # A force of the viewer's mouse reaches the engine, and ends with it.
    data.xfrc_applied[1, 2] = 30.0
    hopping.step(data)
    assert hopping.engine.xfrc_applied[0, 1, 2] == 30.0
    data.xfrc_applied[:] = 0.0
    hopping.step(data)
    assert not hopping.engine.xfrc_applied.any()


def test_a_chosen_policy_begins_an_episode(hopping: Simulation) -> None:
    hopping.advance(0.1, hopping.handle.data)
    hopping.on_request(Request("choose", (2, 1)))
    assert (hopping.runner.policy, hopping.episode, hopping.steps, hopping.total_return) == (2, 2, 0, 0.0)
    for begin in (hopping.on_reset, hopping.on_load):
        hopping.advance(0.1, hopping.handle.data)
        before = hopping.episode
        event = messages.ResetEvent() if begin == hopping.on_reset else messages.LoadModelEvent(path="other.xml")
        assert begin(event) is True  # or the viewer would load the other model
        assert (hopping.episode, hopping.steps) == (before + 1, 0)
    courses = []  # sampled when asked: the same start and policy, another course
    for sampled in (False, True, False):
        hopping.sample(sampled)
        hopping.engine.qvel.zero_()
        hopping.step(hopping.handle.data)
        courses.append(hopping.total_return)
    assert len(set(courses)) == 3
    assert list(hopping.terms) == ["reward"]  # the hopper's task tells no terms


def test_a_checkpoint_is_chosen(tmp_path: Path) -> None:
    folder = train(tiny("Hopper", tmp_path / "run"))
    start, again = started(folder, 1), started(folder, 1, checkpoint=1)
    start.step(start.handle.data)
    start.choose(1, 1)
    assert (start.runner.trained.iteration, start.episode, start.steps) == (1, 2, 0)
    again.runner.env.load_state_dict(start.runner.env.state_dict())  # the second episode's start
    for state in (start, again):
        state.runner._player.obs = state.runner.env.observe()  # pyright: ignore[reportAttributeAccessIssue]
    assert torch.equal(start.runner.choice()[0], again.runner.choice()[0])


def test_commands_and_pushes_reach_a_robot_that_walks(tmp_path: Path) -> None:
    """The command is what the robot sees, a student too; the push, its weight for a tenth of a second, is over then."""
    start = started(train(tiny("Anymal", tmp_path / "anymal", obs=("policy",), iterations=1)))
    start.on_request(Request("command", (0.5, -0.25, 0.1)))
    start.on_request(Request("push", (1.0,)))
    body, weight = start.engine.model.body("base").id, float(start.engine.model.body_mass.sum()) * 9.81
    for _ in range(round(0.1 / start.control_s)):
        start.step(start.handle.data)
        assert start.engine.xfrc_applied[0, body, 1] == pytest.approx(weight)
    start.step(start.handle.data)
    assert not start.engine.xfrc_applied.any()
    assert start.runner.env.kept["command"][0].tolist() == pytest.approx((0.5, -0.25, 0.1))  # pyright: ignore
    assert set(start.terms) == {"linear", "angular", "torque"}


def test_an_object_of_another_size_is_shown(allegro: RunFolder) -> None:
    """Sizes that change with an episode reach the viewer as another model."""
    start = started(allegro)
    cube, first = start.engine.model.geom("cube").id, start.handle.model
    start.on_step(messages.StepEvent(model=first, data=start.handle.data))
    assert start.handle.model is first
    start.engine.expand("geom_size")[:, cube] = 0.05
    start.on_request(Request("begin"))
    start.on_step(messages.StepEvent(model=first, data=start.handle.data))
    assert start.handle.model is not first
    assert np.allclose(start.handle.model.geom_size[cube], 0.05)
