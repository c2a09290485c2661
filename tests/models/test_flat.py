"""Parameters start where matrix products like them to."""

import pytest

from echelon.config import ModelConfig
from echelon.learning.optimizer import Adam, aligned_slices
from echelon.models.actor_critic import ActorCritic


def test_slices_by_hand() -> None:
    """32, 33 and 1 numbers: from 0, 32 and 96, as 33 take two lines of 32."""
    assert aligned_slices([32, 33, 1]) == ([slice(0, 32), slice(32, 65), slice(96, 97)], 128)
    assert aligned_slices([]) == ([], 0)


@pytest.mark.parametrize("networks", [1, 2])
def test_every_weight_is_aligned_and_keeps_its_values(networks: int) -> None:
    model = ActorCritic({"policy": 7}, 3, 4, ModelConfig(hidden=(5, 9)), networks=networks)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = Adam(model.parameters(), 0.1)
    for name, parameter in model.named_parameters():
        assert all(row.storage_offset() % 32 == 0 for row in parameter.detach()), name
        assert parameter.equal(before[name]), name
        assert parameter.untyped_storage().data_ptr() == optimizer.flat.untyped_storage().data_ptr()
