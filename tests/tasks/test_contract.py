"""What every task promises: shapes and types, resets within the step, seeds, resuming, quarantine."""

import dataclasses
import importlib.util
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

import echelon
from echelon import tasks
from echelon.envs.contract import Env, Step
from echelon.errors import UserError
from echelon.sim.contract import MAX_SPEED
from echelon.tasks import TASKS
from echelon.tasks.mujoco_task import MujocoTask

CPU = torch.device("cpu")
NUM_ENVS = 5
MUJOCO_TASKS = [task for task in TASKS if task != "DeceptiveReach"]


def make(task: str, seed: int = 0, spread_clocks: bool = False, **settings: Any) -> Any:
    config = dataclasses.replace(tasks.info(task).preset.env, **settings)
    return tasks.make(task, config, NUM_ENVS, CPU, seed, spread_clocks=spread_clocks)


def actions(env: Env, steps: int) -> Tensor:
    """`[steps, N, A]`, some beyond the bounds."""
    return torch.randn(steps, NUM_ENVS, env.action_dim, generator=torch.Generator().manual_seed(7))


def flat(step: Step) -> Tensor:
    """`[N, K]`: all a step returned, for comparison."""
    parts = [step.obs["policy"], step.final_obs["policy"], step.reward, step.terminated, step.truncated]
    return torch.cat([part.reshape(NUM_ENVS, -1).double() for part in [*parts, *step.log.values()]], dim=1)


def leaves(state: Mapping[str, Any], where: str = "") -> dict[str, Tensor]:
    """The tensors of a nested state, by path."""
    found: dict[str, Tensor] = {}
    for name, value in state.items():
        found |= leaves(value, f"{where}/{name}") if isinstance(value, Mapping) else {f"{where}/{name}": value}
    return found


@pytest.mark.parametrize("task", TASKS)
def test_shapes_types_and_bounds(task: str) -> None:
    """Of a first step too, whose actions beyond the bounds count as those at them."""
    env, bounded = make(task), make(task)
    assert isinstance(env, Env)
    obs, _ = env.reset(), bounded.reset()
    action = 5 * actions(env, 1)[0]
    step = env.step(action)
    assert torch.equal(flat(step), flat(bounded.step(action.clamp(-1, 1))))
    for groups in (obs, step.obs, step.final_obs):
        assert {name: values.shape for name, values in groups.items()} == {
            name: (NUM_ENVS, width) for name, width in env.obs_spec.items()
        }
        assert all(values.dtype == torch.float32 for values in groups.values())
    assert (step.reward.shape, step.reward.dtype) == ((NUM_ENVS,), torch.float32)
    for flag in (step.terminated, step.truncated):
        assert (flag.shape, flag.dtype) == ((NUM_ENVS,), torch.bool)
    assert task not in MUJOCO_TASKS or {"quarantined", "overflow"} < set(step.log)
    for name, value in step.log.items():
        assert (value.shape, value.dtype) == ((NUM_ENVS,), torch.float32), name


@pytest.mark.parametrize("task", TASKS)
def test_final_obs_differs_from_obs_exactly_where_an_episode_ended(task: str) -> None:
    """And what lasts between steps stays in its storage: a recorded CUDA graph continues with what it saw."""

    def places() -> set[int]:
        return {x.data_ptr() for x in (env.clock, *env.totals.values(), *env.kept.values())}

    env = make(task, episode_length=30, spread_clocks=True)
    env.reset()
    ended, before = 0, places() if task in MUJOCO_TASKS else set()
    for action in actions(env, 90):
        step = env.step(action)
        done = step.terminated | step.truncated
        ended += int(done.sum())
        differs = (step.obs["policy"] != step.final_obs["policy"]).any(dim=1)
        assert torch.equal(differs, done)
        assert not (step.terminated & step.truncated).any()
        terms = [value for name, value in step.log.items() if name.startswith("reward/")]
        if terms and task != "Anymal":  # whose reward is cut at 0
            torch.testing.assert_close(torch.stack(terms).sum(dim=0), step.reward)
    assert ended > NUM_ENVS
    assert task not in MUJOCO_TASKS or places() == before
    if task.startswith("AllegroKuka"):  # whose parts hold views of the same
        parts = (env.arms.target, env.pushes.force, env.tolerance.value, env.tolerance.steps)
        memory = (env.progress.lifted, env.progress.best_reach, env.progress.best_distance, env.progress.near_steps)
        assert {part.data_ptr() for part in (*parts, *memory)} <= before


@pytest.mark.parametrize("task", TASKS)
def test_truncation_falls_on_the_last_step_of_the_clock(task: str) -> None:
    env = make(task, episode_length=4)
    env.reset()
    flags = torch.stack([env.step(torch.zeros(NUM_ENVS, env.action_dim)).truncated for _ in range(8)])
    assert torch.equal(flags.all(dim=1), torch.tensor([False, False, False, True] * 2))
    assert torch.equal(flags.any(dim=1), flags.all(dim=1))


@pytest.mark.parametrize("task", ["CartpoleSwingup", "DeceptiveReach"])
def test_spread_clocks_truncate_at_different_steps(task: str) -> None:
    env = make(task, episode_length=50, spread_clocks=True)
    env.reset()
    assert len(env.clock.unique()) > 1
    assert int(env.clock.max()) < 50
    idle = torch.zeros(NUM_ENVS, env.action_dim)
    flags = torch.stack([env.step(idle).truncated for _ in range(50)])
    assert (flags.sum(dim=0) == 1).all()  # every episode ends once within one length, at its own time
    assert flags.any(dim=1).sum() > 1


@pytest.mark.parametrize("task", TASKS)
def test_same_seed_same_trajectory(task: str) -> None:
    def trajectory(seed: int) -> Tensor:
        env = make(task, seed=seed, episode_length=20, spread_clocks=True)
        env.reset()
        return torch.stack([flat(env.step(action)) for action in actions(env, 40)])

    assert torch.equal(trajectory(3), trajectory(3))
    assert not torch.equal(trajectory(3), trajectory(4))


@pytest.mark.parametrize("task", TASKS)
def test_in_every_block_the_same_happens_by_chance(task: str) -> None:
    """Three blocks are three times what one environment of that size does, through resets, goals and pushes."""
    config = dataclasses.replace(tasks.info(task).preset.env, episode_length=8)
    alone = tasks.make(task, config, NUM_ENVS, CPU, 3)
    blocks = tasks.make(task, config, 3 * NUM_ENVS, CPU, 3, blocks=3)
    assert torch.equal(blocks.reset()["policy"], alone.reset()["policy"].repeat(3, 1))
    for action in actions(alone, 20):
        expected, found = alone.step(action), blocks.step(action.repeat(3, 1))
        assert torch.equal(found.terminated | found.truncated, (expected.terminated | expected.truncated).repeat(3))
        for x, y in ((found.reward[:, None], expected.reward[:, None]), (found.obs["policy"], expected.obs["policy"])):
            torch.testing.assert_close(x, y.repeat(3, 1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("task", TASKS)
def test_state_dict_goes_on_to_the_bit(task: str) -> None:
    env = make(task, seed=1, episode_length=30, spread_clocks=True)
    env.reset()
    plan = actions(env, 70)
    for action in plan[:25]:
        env.step(action)
    state = env.state_dict()
    obs = env.observe()["policy"].clone()
    rest = torch.stack([flat(env.step(action)) for action in plan[25:]])

    other = make(task, seed=2, episode_length=30)
    other.reset()
    other.step(plan[0])
    other.load_state_dict(state)
    assert torch.equal(other.observe()["policy"], obs)
    torch.testing.assert_close(leaves(other.state_dict()), leaves(state), rtol=0, atol=0)
    assert torch.equal(torch.stack([flat(other.step(action)) for action in plan[25:]]), rest)


def poison(action: Tensor, env: MujocoTask[Any]) -> Tensor:
    """The action with a NaN for environment 2."""
    poisoned = action.clone()
    poisoned[2] = torch.nan
    return poisoned


def hurl(action: Tensor, env: MujocoTask[Any]) -> Tensor:
    """The action as it is; environment 2 becomes too fast, in its last joint, though finite."""
    env.engine.qvel[2, -1] = 100 * MAX_SPEED
    return action


@pytest.mark.parametrize("trouble", [poison, hurl])
@pytest.mark.parametrize("task", MUJOCO_TASKS)
def test_a_bad_simulation_is_quarantined_alone(task: str, trouble: Callable[[Tensor, MujocoTask[Any]], Tensor]) -> None:
    env, clean = make(task), make(task)
    for one in (env, clean):
        one.reset()
    plan = 0.1 * actions(env, 12)  # gentle, so that no hopper falls
    for action in plan[:5]:
        env.step(action)
        clean.step(action)
    step, expected = env.step(trouble(plan[5], env)), clean.step(plan[5])
    only = torch.arange(NUM_ENVS) == 2
    assert torch.equal(step.terminated, expected.terminated | only)
    assert torch.equal(step.log["quarantined"], only.float())
    assert not step.truncated.any()
    assert step.reward[2] == 0
    assert flat(step).isfinite().all()
    assert torch.equal(flat(step)[~only], flat(expected)[~only])
    assert env.clock[2] == 0
    for action in plan[6:]:
        after, expected = env.step(action), clean.step(action)
        assert not after.log["quarantined"].any()
        assert torch.equal(flat(after)[~only], flat(expected)[~only])


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
    ("AllegroKukaReorientation", {"tolerance": 0.005}, "--env.target-tolerance is at most --env.tolerance, 0.005, not"),
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
        with pytest.raises(UserError, match=r"echelon-rl\[gpu\]"):
            tasks.make("CartpoleSwingup", cartpole, NUM_ENVS, torch.device("cuda"), 0)
