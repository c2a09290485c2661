"""FrankaCubeStack: rewards and ends of states put there by hand."""

import math

import pytest
import torch
from tasks.franka_states import CLOSE, FAR, HOME, LOW_POSE, at, closeness, grip, put
from tasks.states import begun
from torch import Tensor

from echelon.tasks.franka_stack import FrankaCubeStack, FrankaCubeStackConfig

TABLE = 1.025


def stacked(cube: list[Tensor], other: list[Tensor], joints: tuple[float, ...] = HOME) -> FrankaCubeStack:
    env = begun(FrankaCubeStack, FrankaCubeStackConfig(), len(cube))
    put(env, torch.stack(cube).float(), torch.stack(other).float(), torch.tensor(joints))
    return env


def test_reach_counts_grip_point_and_both_fingertips() -> None:
    """Fingertips are 35 + 1.5 mm to both sides of the grip point, along y in the poses tried."""
    centre = grip(HOME)
    below, aside, away = centre - at(0, 0, 0.06), centre + at(0, 0.05, -0.04), at(*FAR)
    env = stacked([below, aside, away], [at(0.3, 0.0, 1.06)] * 3)
    distances = []
    for cube in (below, aside, away):
        points = (centre, centre + at(0, 0.0365, 0), centre - at(0, 0.0365, 0))
        distances.append(sum(math.dist(cube, point) for point in points) / 3)
    lifted = [cube[2] - TABLE > 0.09 for cube in (below, aside, away)]
    assert lifted == [True, True, False]
    env.reward(torch.zeros(3, 7))
    reach = env.log()["reward/reach"]
    torch.testing.assert_close(reach, torch.tensor([0.1 * closeness(d) for d in distances]), **CLOSE)


def test_lift_is_paid_from_90_mm_on() -> None:
    heights = (0.025, 0.0899, 0.0901)
    cubes = [at(FAR[0], FAR[1], TABLE + height) for height in heights]
    env = stacked(cubes, [at(-0.3, -0.3, 1.06)] * 3)
    reward = env.reward(torch.zeros(3, 7))
    figures = env.log()
    assert figures["reward/lift"].tolist() == [0.0, 0.0, 1.5]
    assert figures["lifted"].tolist() == [0, 0, 1]
    # 0.9 m from cube B and half a metre from the gripper, nothing else is worth more than a thousandth.
    torch.testing.assert_close(reward, torch.tensor((0.0, 0.0, 1.5)), atol=1e-3, rtol=0)


def test_align_is_the_distance_from_the_place_on_cube_b_once_lifted() -> None:
    held = grip(HOME)
    errors = (at(0, 0, 0), at(0.03, 0, 0.04), at(0, -0.02, 0))
    env = stacked([held] * 3, [held - at(0, 0, 0.06) + error for error in errors])
    reach = closeness(2 * 0.0365 / 3)
    align = [closeness(e) for e in (0.0, 0.05, 0.02)]
    expected = [0.1 * max(reach, a) + 1.5 + 2.0 * a for a in align]
    assert [a > reach for a in align] == [True, False, True]  # align replaces reach where it is larger
    assert expected[0] == 3.6
    torch.testing.assert_close(env.reward(torch.zeros(3, 7)), torch.tensor(expected), **CLOSE)
    torch.testing.assert_close(env.log()["reward/align"], torch.tensor([2 * a for a in align]), **CLOSE)
    # Below the lifting height it is worth nothing, however near.
    low = at(FAR[0], FAR[1], TABLE + 0.06)
    env = stacked([low], [low - at(0, 0, 0.06)])
    assert env.reward(torch.zeros(1, 7)) < 0.01
    assert env.log()["reward/align"] == 0
    assert not env.succeeded()


def test_stacked_pays_16_and_ends() -> None:
    """Each condition by itself; the height counts from the table."""
    place = at(FAR[0], FAR[1], TABLE + 0.095)
    low = at(0, 0, -0.06)
    cases = [
        (place, place + low, True),
        (place, place + low + at(0.0138, 0.0138, 0), True),  # 19.5 mm aside
        (place, place + low + at(0.0145, 0.0145, 0), False),  # 20.5 mm aside
        (place + at(0, 0, 0.0195), place + low, True),
        (place + at(0, 0, 0.0205), place + low, False),
        (place - at(0, 0, 0.0195), place + low, True),
        (place - at(0, 0, 0.0205), place + low, False),
        (place, place + at(0, 0, -0.3), True),
    ]
    env = stacked([case[0] for case in cases], [case[1] for case in cases])
    expected = torch.tensor([case[2] for case in cases])
    reward = env.reward(torch.zeros(len(cases), 7))
    assert torch.equal(reward == 16.0, expected)
    assert (reward[~expected] < 3.61).all()
    assert torch.equal(env.failed(), expected)
    figures = env.log()
    assert torch.equal(figures["episode/successes"] == 1, expected)
    assert torch.equal(figures["reward/stack"] == 16, expected)
    for name in ("reward/reach", "reward/lift", "reward/align"):
        assert not figures[name][expected].any()


def test_a_cube_that_is_held_is_not_stacked() -> None:
    centre = grip(LOW_POSE)  # 108 mm above the table
    height = TABLE + 0.095
    across = math.sqrt(0.04**2 - (centre[2].item() - height) ** 2)
    near, gone = (at(centre[0].item() + reach, 0, height) for reach in (across - 1e-3, across + 1e-3))
    env = stacked([near, gone], [near - at(0, 0, 0.06), gone - at(0, 0, 0.06)], LOW_POSE)
    assert env.failed().tolist() == [False, True]
    reward = env.reward(torch.zeros(2, 7))
    assert 3.5 < reward[0] < 3.61
    assert reward[1] == 16.0


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
