"""What every task promises: shapes and types, resets within the step, seeds, resuming, quarantine."""

import dataclasses
import importlib.util
from typing import Any

import pytest
import torch
from tasks.states import begun
from tiny import differing
from torch import Tensor

import echelon
from echelon import tasks
from echelon.cli import main
from echelon.config.schema import ROBUST
from echelon.envs.contract import Env, Step
from echelon.errors import UserError
from echelon.sim.contract import MAX_SPEED
from echelon.tasks import TASKS
from echelon.tasks.mujoco_task import MujocoTask

CPU = torch.device("cpu")
NUM_ENVS = 5
MUJOCO_TASKS = [task for task in TASKS if task != "DeceptiveReach"]
# In alphabetical order of the tasks, the four AllegroKuka ones after AllegroHand.
WIDTHS = dict(zip(TASKS, (88, 99, 117, 99, 196, 48, 5, 4, 19, 19, 11, 108, 211), strict=True))
EVERY = pytest.mark.parametrize("task", TASKS)


def make(task: str, seed: int = 0, blocks: int = 1, **settings: Any) -> Any:
    return begun(task, blocks * NUM_ENVS, "cpu", seed, blocks=blocks, **settings)


def actions(env: Env, steps: int) -> Tensor:
    """`[steps, N, A]`, some beyond the bounds."""
    return torch.randn(steps, NUM_ENVS, env.action_dim, generator=torch.Generator().manual_seed(7))


def flat(step: Step) -> Tensor:
    """`[N, K]`: all a step returned, for comparison."""
    parts = [step.obs["policy"], step.final_obs["policy"], step.reward, step.terminated, step.truncated]
    return torch.cat([part.reshape(NUM_ENVS, -1).double() for part in [*parts, *step.log.values()]], dim=1)


@EVERY
def test_shapes_types_and_bounds(task: str) -> None:
    """Actions beyond the bounds count as those at them."""
    env, bounded = make(task), make(task)
    assert isinstance(env, Env)
    assert env.obs_spec == {"policy": WIDTHS[task]}
    obs, action = env.observe(), 5 * actions(env, 1)[0]
    step = env.step(action)
    assert torch.equal(flat(step), flat(bounded.step(action.clamp(-1, 1))))
    found = {f"{i} {name}": x for i, part in enumerate((obs, step.obs, step.final_obs)) for name, x in part.items()}
    expected = {f"{i} {name}": (NUM_ENVS, width) for i in range(3) for name, width in env.obs_spec.items()}
    found |= {"reward": step.reward} | step.log
    expected |= dict.fromkeys(("reward", *step.log), (NUM_ENVS,))
    assert {name: (x.shape, x.dtype) for name, x in found.items()} == {
        name: (shape, torch.float32) for name, shape in expected.items()
    }
    for flag in (step.terminated, step.truncated):
        assert (flag.shape, flag.dtype) == ((NUM_ENVS,), torch.bool)
    assert task not in MUJOCO_TASKS or {"quarantined", "overflow"} < set(step.log)


@EVERY
def test_final_obs_differs_from_obs_exactly_where_an_episode_ended(task: str) -> None:
    """And what lasts between steps stays in its storage: a recorded CUDA graph continues with what it saw."""

    def places() -> set[int]:
        return {x.data_ptr() for x in (env.clock, *env.totals.values(), *env.kept.values())}

    env = make(task, episode_length=8, spread_clocks=True)
    ended, before = 0, places() if task in MUJOCO_TASKS else set()
    for action in actions(env, 24):
        step = env.step(action)
        done = step.terminated | step.truncated
        ended += int(done.sum())
        assert torch.equal((step.obs["policy"] != step.final_obs["policy"]).any(dim=1), done)
        assert not (step.terminated & step.truncated).any()
        terms = [value for name, value in step.log.items() if name.startswith("reward/")]
        if terms and task != "Anymal":  # whose reward is cut at 0
            torch.testing.assert_close(torch.stack(terms).sum(dim=0), step.reward)
    assert ended > NUM_ENVS
    assert task not in MUJOCO_TASKS or places() == before
    if task.startswith("AllegroKuka"):  # whose parts hold views of the same
        parts = (env.arms.target, env.pushes.force, env.tolerance.value, env.tolerance.steps)
        assert {part.data_ptr() for part in (*parts, *vars(env.progress).values())} <= before


@EVERY
def test_truncation_falls_on_the_last_step_of_the_clock(task: str) -> None:
    """With spread clocks, every episode ends once within one length, at its own time."""
    env = make(task, episode_length=4)
    flags = torch.stack([env.step(torch.zeros(NUM_ENVS, env.action_dim)).truncated for _ in range(8)])
    assert torch.equal(flags, torch.tensor([False, False, False, True] * 2)[:, None].expand(8, NUM_ENVS))
    if task in ("CartpoleSwingup", "DeceptiveReach"):
        env = make(task, episode_length=50, spread_clocks=True)
        assert len(env.clock.unique()) > 1
        assert int(env.clock.max()) < 50
        flags = torch.stack([env.step(torch.zeros(NUM_ENVS, env.action_dim)).truncated for _ in range(50)])
        assert (flags.sum(dim=0) == 1).all()
        assert flags.any(dim=1).sum() > 1


@EVERY
def test_in_every_block_the_same_happens_by_chance(task: str) -> None:
    """Three blocks are three times what one environment of that size does, through resets, goals and pushes."""
    alone, blocks = make(task, 3, episode_length=8), make(task, 3, blocks=3, episode_length=8)
    assert torch.equal(blocks.observe()["policy"], alone.observe()["policy"].repeat(3, 1))
    for action in actions(alone, 12):
        expected, found = alone.step(action), blocks.step(action.repeat(3, 1))
        assert torch.equal(found.terminated | found.truncated, (expected.terminated | expected.truncated).repeat(3))
        for x, y in ((found.reward[:, None], expected.reward[:, None]), (found.obs["policy"], expected.obs["policy"])):
            torch.testing.assert_close(x, y.repeat(3, 1), rtol=1e-5, atol=1e-5)


ROBUSTLY = [(task, {"randomise": ROBUST}) for task in ("Hopper", "AllegroHand")]


@pytest.mark.parametrize(("task", "settings"), [*((task, {}) for task in TASKS), *ROBUSTLY])
def test_a_seed_and_a_state_decide_what_follows_to_the_bit(task: str, settings: dict[str, Any]) -> None:
    env, same, other = (make(task, seed, episode_length=8, spread_clocks=True, **settings) for seed in (1, 1, 2))
    plan = actions(env, 22)
    runs = [torch.stack([flat(one.step(action)) for action in plan[:10]]) for one in (env, same, other)]
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])
    state, obs = env.state_dict(), env.observe()["policy"].clone()
    rest = torch.stack([flat(env.step(action)) for action in plan[10:]])
    other.load_state_dict(state)
    assert torch.equal(other.observe()["policy"], obs)
    assert not differing(other.state_dict(), state)
    for one in (other, same):
        assert torch.equal(torch.stack([flat(one.step(action)) for action in plan[10:]]), rest)


@pytest.mark.parametrize("task", MUJOCO_TASKS)
def test_a_bad_simulation_is_quarantined_alone(task: str) -> None:
    """Environment 2 gets an action of NaN, and later becomes too fast in its last joint, though finite."""
    env, clean = make(task), make(task)
    only = torch.arange(NUM_ENVS) == 2
    for number, planned in enumerate(0.1 * actions(env, 12)):  # gentle, so that no hopper falls
        action, bad = planned.clone(), number in (4, 8)
        if number == 4:
            action[2] = torch.nan
        if number == 8:
            env.engine.qvel[2, -1] = 100 * MAX_SPEED
        step, expected = env.step(action), clean.step(planned)
        assert step.terminated[2] == bad
        assert torch.equal(step.log["quarantined"], only.float() * bad)
        assert not step.truncated.any()
        assert flat(step).isfinite().all()
        assert torch.equal(flat(step)[~only], flat(expected)[~only])
        assert not bad or (step.reward[2] == 0 and env.clock[2] == 0)


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("hoper", {}, "did you mean Hopper"),
    ("Hopper", {"num_envs": 0}, "--num-envs must be at least 1, not 0"),
    ("Hopper", {"episode_length": 0}, "--env.episode-length must be at least 1, not 0"),
    ("DeceptiveReach", {"episode_length": 0}, "--env.episode-length must be at least 1, not 0"),
    ("DeceptiveReach", {"wall_length": 0.0}, "--env.wall-length must be above 0, not 0.0"),
    ("DeceptiveReach", {"wall_length": 2.0}, "--env.wall-length must be below 2, not 2.0"),
    ("DeceptiveReach", {"start_spread": 0.5}, "--env.start-spread must be at most 0.4, not 0.5"),
    ("FrankaCubePush", {"start_spread": 0.05}, "--env.start-spread must be above 0.05, not 0.05"),
    ("FrankaCubePush", {"start_yaw": -0.1}, "--env.start-yaw must be at least 0, not -0.1"),
    ("FrankaCubePush", {"joint_spread": -0.1}, "--env.joint-spread must be at least 0, not -0.1"),
    ("AllegroKukaReorientation", {"success_steps": 0}, "--env.success-steps must be at least 1, not 0"),
    ("AllegroKukaReorientation", {"max_successes": 0}, "--env.max-successes must be at least 1, not 0"),
    ("AllegroKukaReorientation", {"tolerance_interval": -1}, "--env.tolerance-interval must be at least 1, not -1"),
    ("AllegroKukaReorientation", {"target_tolerance": 0.0}, "--env.target-tolerance must be above 0, not 0.0"),
    ("AllegroKukaReorientation", {"tolerance": 0.005}, "--env.target-tolerance 0.01 is above --env.tolerance 0.005"),
]


def test_what_cannot_be_made_is_refused() -> None:
    for task, settings, sentence in REFUSED:
        with pytest.raises(UserError, match=sentence):
            echelon.make(task, device="cpu", **settings)
        if "num_envs" not in settings:  # and where a task is made from settings directly
            with pytest.raises(UserError, match=sentence):
                tasks.make(task, dataclasses.replace(tasks.info(task).preset.env, **settings), NUM_ENVS, CPU, 0)
    cartpole = tasks.info("CartpoleSwingup").preset.env
    with pytest.raises(UserError, match="HopperConfig"):
        tasks.make("Hopper", cartpole, NUM_ENVS, CPU, 0)
    for task in ("CartpoleSwingup", "DeceptiveReach"):
        with pytest.raises(UserError, match="num_envs"):
            tasks.make(task, tasks.info(task).preset.env, 0, CPU, 0)
    if importlib.util.find_spec("mujoco_warp") is None:
        with pytest.raises(UserError, match=r"pip install -e '.\[gpu\]"):
            tasks.make("CartpoleSwingup", cartpole, NUM_ENVS, torch.device("cuda"), 0)


def test_actions_are_mapped_onto_the_ranges_of_actuators(capsys: pytest.CaptureFixture[str]) -> None:
    """By hand for servos from 0 to 255 and from -3 to 3. In the built-in tasks an action is the control, to the bit, or
    the task has its own rule."""
    env: Any = echelon.make("viewing.crawler:Crawler", 3, "cpu")
    assert env.action_dim == 4  # fl and bl to 255, fr and br to 3
    env.step(torch.tensor([[-1.0, -1.0, 0.0, 0.0], [1.0, 1.0, 0.5, 0.5], [9.0, -9.0, -0.5, 0.25]]))
    expected = [[0.0, -3.0, 127.5, 0.0], [255.0, 3.0, 191.25, 1.5], [255.0, -3.0, 63.75, 0.75]]
    assert env.engine.ctrl.tolist() == expected
    assert main(["env", "check", "viewing.crawler:Crawler", "--device", "cpu"]) == 0
    said = capsys.readouterr().out
    assert "actions from -1 to 1 become controls from 0 to 255 (fl, bl), -3 to 3 (fr, br)\n" in said
    for task in MUJOCO_TASKS:
        env = echelon.make(task, 2, "cpu")
        action = torch.full((2, env.action_dim), -0.0)
        own = type(env).control is not MujocoTask.control
        assert own or env.control(action) is action, task
        assert env.controls() in (
            "the task's own control() turns actions into controls",
            "actions from -1 to 1 become controls from -1 to 1 (force)",
            "actions from -1 to 1 become controls from -1 to 1 (hip, knee, ankle)",
        )
