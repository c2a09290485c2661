"""Anymal on rough ground: tiles that repeat themselves, and levels that environments rise and fall through."""

import mujoco
import numpy as np
import pytest
import torch
from tasks.states import begun, put

from echelon.tasks.anymal.terrain import LEVELS, PITCH, TILE

ROUGH = {"terrain": 0.2}


def heights(model: mujoco.MjModel, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Of the ground, found by rays from above that see the floor alone."""
    data, hit = mujoco.MjData(model), np.zeros(1, np.int32)
    data.qpos[2] = 50.0  # the robot is out of the way
    mujoco.mj_forward(model, data)
    rays = (np.array([*at, 5.0]) for at in zip(x, y, strict=True))
    return np.array([5 - mujoco.mj_ray(model, data, at, np.array([0, 0, -1.0]), None, 1, -1, hit) for at in rays])


def test_tiles_get_rougher_and_repeat_themselves() -> None:
    model, rng = begun("Anymal", 1, **ROUGH).engine.model, np.random.default_rng(1)
    x, y = rng.uniform(-4.8, 4.8, (2, 300))
    levels = [heights(model, x + PITCH * level, y) for level in range(LEVELS)]
    for level, found in enumerate(levels):
        np.testing.assert_allclose(found, level / (LEVELS - 1) * levels[-1], atol=1e-5)
    assert 0.15 < levels[-1].max() <= 0.2
    assert levels[-1].min() >= -1e-6
    assert (levels[-1][np.hypot(x, y) < 0.6] < 1e-6).all()
    edge, along = rng.uniform(-4.8, -3.2, 100), rng.uniform(-4, 4, 100)
    top = PITCH * (LEVELS - 1)
    for here, there in (
        ((top + edge, along), (top + edge + TILE, along)),
        ((top + along, edge), (top + along, edge + TILE)),
    ):
        np.testing.assert_allclose(heights(model, *here), heights(model, *there), atol=1e-5)


def test_a_robot_that_leaves_its_tile_walks_on_at_its_other_edge() -> None:
    env, twin = (begun("Anymal", 2, **ROUGH) for _ in range(2))
    state = env.engine.qpos.clone()
    state[:, 0] = torch.tensor([3.999, PITCH - 1.0]).double()
    state[:, 1] = torch.tensor([0.5, -3.9995]).double()
    speed = torch.zeros(2, 18).double()
    speed[:, 0], speed[:, 1] = 1.0, -1.0
    for one, moved in ((env, 0.0), (twin, torch.tensor([[-TILE, 0.0], [0.0, TILE]]).double())):
        one.kept["level"].copy_(torch.tensor([0, 1]))
        one.engine.set_state(torch.ones(2, dtype=torch.bool), state, speed)
        one.engine.qpos[:, :2] += moved
    for _ in range(10):
        a, b = (one.step(torch.full((2, 12), 0.1)) for one in (env, twin))
        torch.testing.assert_close(a.obs["policy"], b.obs["policy"], rtol=0, atol=1e-4)
    torch.testing.assert_close(env.engine.qpos, twin.engine.qpos, rtol=0, atol=1e-4)
    assert env.engine.qpos[0, 0] < -3
    assert env.engine.qpos[1, 1] > 3


def test_evaluations_have_all_levels_and_in_training_they_rise_with_success_and_fall_with_the_robot() -> None:
    """The roughest first, for a film of one robot; and the same for every policy that is compared."""
    steps = [LEVELS - 1 - i % LEVELS for i in range(10)]
    assert begun("Anymal", 10, **ROUGH).engine.qpos[:, 0].tolist() == [PITCH * level for level in steps]
    assert begun("Anymal", 20, blocks=2, **ROUGH).kept["level"].tolist() == steps * 2
    assert not begun("Anymal", 10, spread_clocks=True, **ROUGH).engine.qpos[:, 0].any()
    # Passed; passed at the top; too far from the command; fell; fell on flat ground; still walking.
    env = begun("Anymal", 6, spread_clocks=True, **ROUGH)
    level = env.kept["level"]
    level.copy_(torch.tensor([2, LEVELS - 1, 2, 2, 0, 2]))
    state = env.engine.qpos.clone()
    state[:, 0] = PITCH * level
    state[3:5, 2] = 0.1
    put(env, state)
    env.clock[:] = torch.tensor([2499, 2499, 2499, 5, 5, 5])
    env.totals["steps"].fill_(99.0)
    env.totals["tracking_error"].copy_(99 * torch.tensor([0.1, 0.1, 0.9, 0.1, 0.1, 0.1]))
    step = env.step(torch.zeros(6, 12))
    assert (step.terminated | step.truncated).tolist() == [True] * 5 + [False]
    assert step.log["level"].tolist() == [2, LEVELS - 1, 2, 2, 0, 2]
    assert level[[0, 2, 3, 4, 5]].tolist() == [3, 2, 1, 0, 2]
    assert 0 <= level[1] < LEVELS
    assert env.engine.qpos[:5, 0].tolist() == pytest.approx((PITCH * level[:5]).tolist())
