"""DeceptiveReach by hand: one step of the dynamics, every side of the wall, what trap and goal are worth."""

from typing import Any

import pytest
import torch
from gpu import needs_gpu
from tasks.states import begun, check_spread
from torch import Tensor

from echelon.envs.contract import Step
from echelon.tasks.deceptive_reach.task import DeceptiveReach

NEAR = {"atol": 1e-6, "rtol": 0.0}


def make(num_envs: int = 1, **settings: Any) -> DeceptiveReach:
    return begun("DeceptiveReach", num_envs, **settings)


def place(env: DeceptiveReach, position: tuple[float, float], moves: tuple[float, float] = (0.0, 0.0)) -> None:
    """Put environment 0 somewhere, at the velocity that makes its next step, without action, `moves` long."""
    env.position[:, 0] = torch.tensor(position)
    env.velocity[:, 0] = torch.tensor(moves) / (1 - env.drag)


def coast(env: DeceptiveReach) -> Step:
    """One step without action."""
    return env.step(torch.zeros(env.num_envs, 2))


def random_actions(steps: int, num_envs: int) -> Tensor:
    return torch.randn(steps, num_envs, 2, generator=torch.Generator().manual_seed(3))


def test_one_step_in_the_open_and_against_walls() -> None:
    """v = 0.95·(0.04, 0) + 0.01·(1, -0.5) = (0.048, -0.005); p = (-0.6, 0.1) + v = (-0.552, 0.095).

    Distance to (0.7, 0): √(1.252² + 0.095²) = 1.2555991; reward 0.1·(1 - 0.62779955) = 0.03722005. Top speed 0.2.
    """
    env = make()
    env.position[:, 0], env.velocity[:, 0] = torch.tensor((-0.6, 0.1)), torch.tensor((0.04, 0.0))
    step = env.step(torch.tensor([[1.0, -0.5]]))
    torch.testing.assert_close(step.obs["policy"], torch.tensor([[-0.552, 0.095, 0.24, -0.025]]), **NEAR)
    torch.testing.assert_close(step.reward, torch.tensor([0.03722005]), **NEAR)
    assert not step.terminated | step.truncated
    for name, (at, moves, ends) in COLLISIONS.items():
        env = make()
        place(env, at, moves)
        coast(env)
        torch.testing.assert_close(env.position[:, 0], torch.tensor(ends), **NEAR, msg=name)
        kept = [m if abs(a + m - e) <= 1e-6 else 0.0 for a, m, e in zip(at, moves, ends, strict=True)]
        torch.testing.assert_close(env.velocity[:, 0], torch.tensor(kept), **NEAR, msg=name)


# The wall of length 1.1 is the box [0.2, 0.3] x [-0.55, 0.55]. Where from, by how much, and where to.
COLLISIONS = {
    "front": ((0.15, 0.0), (0.1, 0.02), (0.2, 0.02)),
    "faster than the wall is thick": ((0.15, 0.0), (0.19, 0.0), (0.2, 0.0)),
    "back": ((0.35, 0.3), (-0.1, 0.02), (0.3, 0.32)),
    "upper end": ((0.25, 0.6), (0.01, -0.1), (0.26, 0.55)),
    "lower end": ((0.25, -0.6), (0.01, 0.1), (0.26, -0.55)),
    "slides along the face": ((0.2, 0.0), (0.05, 0.03), (0.2, 0.03)),
    "leaves the face": ((0.2, 0.0), (-0.05, 0.0), (0.15, 0.0)),
    "slides past the end": ((0.2, 0.54), (0.0, 0.03), (0.2, 0.57)),
    "passes the end": ((0.15, 0.56), (0.1, 0.0), (0.25, 0.56)),
    "along x before along y": ((0.15, 0.54), (0.1, 0.03), (0.2, 0.57)),
    "left edge": ((-0.95, 0.0), (-0.1, 0.0), (-1.0, 0.0)),
    "corner": ((0.95, 0.9), (0.1, 0.1), (1.0, 1.0)),
}


def test_no_point_is_ever_inside_the_wall_or_outside_the_arena() -> None:
    env = make(256, episode_length=1000)
    env.position.uniform_(-1, 1, generator=torch.Generator().manual_seed(1))
    (left, right), (bottom, top) = env.wall
    x, y = env.position
    x.masked_fill_((x > left) & (x < right) & (y > bottom) & (y < top), -0.5)
    for action in 3.0 * random_actions(400, 256):
        env.step(action)
        assert not ((x > left) & (x < right) & (y > bottom) & (y < top)).any()
        assert env.position.abs().max() <= 1.0


def test_reaching_the_goal_pays_terminates_and_starts_again_with_figures_of_the_episode() -> None:
    """(0.4, 0) + (0.12, 0) = (0.52, 0): distance 0.18, within the radius of 0.2. 0.1·(1 - 0.09) + 50 = 50.091.

    On the last step of the clock too that is no truncation. (0.499, 0) is just outside.
    """
    env = make(3)
    place(env, (0.4, 0.0), (0.099, 0.0))
    assert not coast(env).terminated.any()
    env.clock[:] = torch.tensor((env.episode_length - 1, 0, 0))
    place(env, (0.4, 0.0), (0.12, 0.0))
    before = env.position.clone()
    step = coast(env)
    torch.testing.assert_close(step.reward[0], torch.tensor(50.091), atol=1e-5, rtol=0.0)
    assert step.terminated.tolist() == [True, False, False]
    assert not step.truncated.any()
    assert step.log["episode/successes"].tolist() == [1.0, 0.0, 0.0]
    torch.testing.assert_close(step.final_obs["policy"][0], torch.tensor((0.52, 0.0, 0.6, 0.0)), **NEAR)
    assert (step.obs["policy"][0] - torch.tensor((*env.start, 0.0, 0.0))).abs().max() <= 0.1
    assert env.clock.tolist() == [0, 1, 1]
    assert torch.equal(env.position[:, 1:], before[:, 1:])  # at rest, and not reset
    # Two steps in the trap, one out of it, then the goal: the totals grow, and start again with the next episode.
    env = make()
    seen = []
    for at in ((0.2, 0.0), (0.01, 0.5), (-0.01, 0.5), (0.6, 0.0)):
        place(env, at)
        log = coast(env).log
        seen.append([log[name].item() for name in ("trapped", "episode/trapped_steps", "episode/closest")])
    # Distances: 0.5, √(0.69² + 0.5²) = 0.852, more, 0.1
    expected = torch.tensor([[1.0, 1.0, 0.5], [1.0, 2.0, 0.5], [0.0, 2.0, 0.5], [0.0, 2.0, 0.1]])
    torch.testing.assert_close(torch.tensor(seen), expected, **NEAR)
    place(env, (-0.6, 0.0))
    assert coast(env).log["episode/trapped_steps"] == 0.0


def total_of(env: DeceptiveReach, policy: Any) -> tuple[float, bool]:
    """Return of one episode from the start's centre, and whether it ended at the goal."""
    place(env, env.start)
    total, obs = 0.0, env.observe()["policy"]
    while True:
        step = env.step(policy(obs))
        total += step.reward.item()
        if step.terminated or step.truncated:
            return total, bool(step.terminated)
        obs = step.obs["policy"]


def test_what_trap_and_goal_are_worth() -> None:
    """The best place before the wall is (0.2, 0), 0.5 from the goal: 0.1·(1 - 0.25) = 0.075 a step.

    So 60 steps there pay 4.5, and forever, which is what bootstrapping at the time limit makes of it, 0.075/(1 - 0.99)
    = 7.5 at γ = 0.99. The goal pays 50 even in the last step, where it is still worth 50·0.99⁵⁹ = 27.6 at the start.
    """
    env = make()
    place(env, (env.wall_face, 0.0))
    torch.testing.assert_close(coast(env).reward, torch.tensor([0.075]), **NEAR)
    # The way round pays less: at the wall's end (0.2, 0.55) the distance is √(0.5² + 0.55²) = 0.743.
    place(env, (0.2, 0.55))
    torch.testing.assert_close(coast(env).reward, torch.tensor([0.0628344]), **NEAR)
    trap = 60 * 0.075
    assert trap == pytest.approx(4.5)
    assert 50 * 0.99**59 > 3 * 0.075 / (1 - 0.99)

    climbs, reached = total_of(make(), lambda obs: torch.tensor([[1.0, 0.0]]))
    assert not reached
    assert 3.5 < climbs < trap

    def round_the_wall(obs: Tensor) -> Tensor:
        x, y = obs[0, :2].tolist()
        target = (0.1, 0.75) if x < 0.05 or (y < 0.6 and x < 0.3) else (0.45, 0.7) if x < 0.35 else (0.7, 0.0)
        return (5 * (torch.tensor([target]) - obs[:, :2]) - 1.5 * obs[:, 2:]).clamp(-1, 1)

    walks, reached = total_of(make(), round_the_wall)
    assert reached
    assert 50 < walks < 53


def test_starts_settings_and_the_drawing_that_follows_the_points() -> None:
    obs = make(1000).reset()["policy"]
    check_spread(obs[:, :2] - torch.tensor((-0.6, 0.0)), -0.1, 0.1)
    assert (obs[:, 2:] == 0).all()
    env = make(wall_length=0.6, dense_reward=0.2, goal_bonus=3.0, start_spread=0.0, episode_length=9)
    assert env.wall == ((0.2, pytest.approx(0.3)), (-0.3, 0.3))
    assert env.episode_length == 9
    torch.testing.assert_close(env.reset()["policy"], torch.tensor([[-0.6, 0.0, 0.0, 0.0]]), **NEAR)
    place(env, (0.7, 0.0))
    torch.testing.assert_close(coast(env).reward, torch.tensor([3.2]), **NEAR)
    env = make(3, wall_length=0.8)
    drawing = env.drawing()
    assert drawing is env.drawing()
    env.reset()
    for _ in range(4):
        step = env.step(torch.tensor([[1.0, -1.0], [0.0, 1.0], [-1.0, 0.0]]))
        torch.testing.assert_close(drawing.engine.qpos.float(), step.obs["policy"][:, :2])
        places = drawing.engine.read("xpos")[:, drawing.engine.model.body("point").id]
        torch.testing.assert_close(places[:, :2].float(), env.position.T)
    wall = drawing.engine.model.geom("wall")
    assert (wall.pos[0] - wall.size[0], wall.pos[0] + wall.size[0]) == pytest.approx(env.wall[0])
    assert wall.size[1] == env.wall[1][1]


@needs_gpu
def test_on_cuda_it_steps_without_a_sync_in_a_graph_and_as_on_the_cpu() -> None:
    cuda = torch.device("cuda")
    here = make(256, episode_length=1000)
    there = DeceptiveReach(here.config, 256, cuda, seed=0)
    there.reset()
    there.position.copy_(here.position)
    actions = random_actions(30, 256)
    theirs = actions.to(cuda)
    torch.cuda.set_sync_debug_mode("error")
    try:
        steps = [there.step(action) for action in theirs]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    expected = [here.step(action) for action in actions]
    same = ~torch.stack([step.terminated for step in expected]).any(0)  # new starts are drawn by different generators
    for step, ours in zip(steps, expected, strict=True):
        torch.testing.assert_close(step.obs["policy"].cpu()[same], ours.obs["policy"][same], atol=1e-4, rtol=0.0)

    graph, action = torch.cuda.CUDAGraph(), torch.ones(256, 2, device=cuda)
    graph.register_generator_state(there.generator)
    with torch.cuda.graph(graph):
        step = there.step(action)
    clock = there.clock.clone()
    graph.replay()
    assert torch.equal(there.clock, torch.where(step.terminated, 0, clock + 1))
