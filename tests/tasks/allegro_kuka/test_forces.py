"""Random forces: how large, how often, how long."""

import math

import pytest
import torch

from echelon.tasks.allegro_kuka.draws import Pushes
from echelon.tasks.mujoco_task import Rng

NUM_ENVS = 4000


def made(scale: float = 0.3) -> Pushes:
    pushes = Pushes(NUM_ENVS, scale, 1 / 60, Rng(torch.Generator().manual_seed(0), NUM_ENVS))
    pushes.begin(torch.ones(NUM_ENVS, dtype=torch.bool))
    return pushes


def test_chances_are_log_uniform() -> None:
    """Between 0.001 and 0.1, half of them below 0.01."""
    chance = made().chance
    assert 0.001 <= chance.min() < 0.0011
    assert 0.099 < chance.max() <= 0.1
    assert (chance < 0.01).float().mean().item() == pytest.approx(0.5, abs=0.03)
    assert chance.log().std().item() == pytest.approx(math.log(100) / math.sqrt(12), rel=0.03)


def test_a_force_stays_and_decays_until_another_is_drawn() -> None:
    pushes = made()
    assert not pushes.force.any()
    pushes.force[:] = torch.tensor([1.0, -2.0, 3.0])
    pushes.chance[:] = 0.1
    pushes.chance[0] = 0.0
    pushes.advance()
    # 0.99 every 0.08 s: 0.99 ** (1 / 60 / 0.08) = 0.9979 a step
    torch.testing.assert_close(pushes.force[0], 0.9979083 * torch.tensor([1.0, -2.0, 3.0]), rtol=1e-6, atol=0)
    fresh = (pushes.force - 0.9979083 * torch.tensor([1.0, -2.0, 3.0])).abs().amax(dim=1) > 1e-5
    assert fresh.float().mean().item() == pytest.approx(0.1, abs=0.015)


def test_fresh_forces_have_the_scale_as_their_deviation() -> None:
    pushes = made()
    pushes.chance[:] = 1.0
    pushes.advance()
    assert pushes.force.std().item() == pytest.approx(0.3, rel=0.03)
    assert pushes.force.mean(dim=0).abs().max() < 0.02
