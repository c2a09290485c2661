"""Parameters start where matrix products like them to."""

import torch

from echelon.config import ModelConfig
from echelon.learning.optimizer import Adam
from echelon.models.actor_critic import ActorCritic
from echelon.models.flat import places
from echelon.models.population import Population


def test_places_by_hand() -> None:
    """32, 33 and 1 numbers: from 0, 32 and 96, as 33 take two lines of 32."""
    assert places([32, 33, 1]) == ([slice(0, 32), slice(32, 65), slice(96, 97)], 128)
    assert places([]) == ([], 0)


def test_every_weight_is_aligned_and_keeps_its_values() -> None:
    model = ActorCritic({"policy": 7}, 3, 2, ModelConfig(hidden=(5, 9)))
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = Adam(model.parameters(), 0.1)
    for name, parameter in model.named_parameters():
        assert parameter.storage_offset() % 32 == 0, name
        assert parameter.equal(before[name]), name
    assert model.log_std.data_ptr() >= optimizer.flat.data_ptr()


def test_every_members_weights_are_aligned() -> None:
    population = Population({"policy": 7}, 3, 4, ModelConfig(hidden=(5, 9)))
    for name, stacked in population.weights.items():
        assert all(row.storage_offset() % 32 == 0 for row in stacked.detach()), name
    for index, row in enumerate(population.weights["actor.observe.weight"].detach()):
        assert row.equal(population.member(index).actor.observe.weight)


def test_padding_stays_zero() -> None:
    model = ActorCritic({"policy": 7}, 3, 2, ModelConfig(hidden=(5,)))
    optimizer = Adam(model.parameters(), 0.1)
    flat = optimizer.flat
    for _ in range(3):
        optimizer.step(sum(p.square().sum() for p in model.parameters()) + torch.zeros(()))
    used = sum(p.square().sum() for p in model.parameters())
    torch.testing.assert_close(flat.square().sum(), used)
