"""FrankaCubeStack: ends, and what an episode remembers."""

import pytest
import torch
from tasks.franka_cube.states import FAR, HOME, at, put
from tasks.states import begun
from torch import Tensor

from echelon.tasks.franka_cube.task import FrankaCubeStack, FrankaCubeStackConfig

TABLE = 1.025


def stacked(cube: list[Tensor], other: list[Tensor], joints: tuple[float, ...] = HOME) -> FrankaCubeStack:
    env = begun(FrankaCubeStack, FrankaCubeStackConfig(), len(cube))
    put(env, torch.stack(cube).float(), torch.stack(other).float(), torch.tensor(joints))
    return env


def test_a_stack_ends_its_episode_within_the_step() -> None:
    place = at(FAR[0], FAR[1], TABLE + 0.095)
    env = stacked([place, at(0.3, 0.3, 1.05)], [place - at(0, 0, 0.06), at(-0.2, -0.3, 1.06)])
    env.clock[:] = 100
    step = env.step(torch.zeros(2, 7))
    assert step.terminated.tolist() == [True, False]
    assert step.reward[0] == 16.0
    assert step.log["episode/successes"].tolist() == [1, 0]
    assert env.clock.tolist() == [0, 101]
    assert env.engine.qpos[0, 2].item() == pytest.approx(1.05, abs=1e-6)  # a new start


def test_an_episode_remembers_that_the_cube_was_lifted() -> None:
    high, low = at(FAR[0], FAR[1], 1.4), at(FAR[0], FAR[1], 1.05)
    env = stacked([high, low], [at(-0.2, -0.3, 1.06)] * 2)
    first = env.step(torch.zeros(2, 7))
    assert first.log["episode/lifted"].tolist() == first.log["lifted"].tolist() == [1, 0]
    put(env, torch.stack((low, low)).float(), torch.tensor([(-0.2, -0.3, 1.06)] * 2))
    env.clock[:] = 298
    last = env.step(torch.zeros(2, 7))
    assert last.log["lifted"].tolist() == [0, 0]
    assert last.log["episode/lifted"].tolist() == [1, 0]
    assert last.truncated.all()
    assert not env.totals["lifted"].any()


def test_a_cube_put_on_the_other_stays_there() -> None:
    """And that is a stack, if the height of a resting pair is right to within the tolerance."""
    base = at(FAR[0], FAR[1], 1.06)
    env = stacked([base + at(0.01, 0.0, 0.0605)], [base])
    for _ in range(20):
        env.engine.step(env.substeps)
    assert env.height().item() == pytest.approx(0.095, abs=1e-4)
    assert env.succeeded().all()
    assert env.engine.qvel[:, :12].abs().max() < 1e-3
